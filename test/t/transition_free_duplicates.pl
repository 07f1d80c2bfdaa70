# A duplicate transition costs nothing that outlives it, and is answered where nothing may be written.
#
# 100,000 orders are expired in one call, and the call is sent again; single ones and events likewise. What a duplicate
# costs is read from the server's own counters, and every count is first seen to move when rows move.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

# What is counted must be this test's doing.
my $node = start_node('primary', streaming => 1, conf => "autovacuum = off");

$node->safe_psql('postgres', <<~'END');
	CREATE SEQUENCE fired;
	CREATE TABLE orders (id integer PRIMARY KEY, status text NOT NULL, note text) WITH (fillfactor = 50);
	INSERT INTO orders SELECT n, 'WAIT_PAY' FROM generate_series(1, 100000) AS n;
	CREATE FUNCTION count_firing() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN PERFORM nextval('public.fired'); RETURN NEW; END $$;
	CREATE TRIGGER b BEFORE INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION count_firing();
	CREATE TRIGGER s BEFORE INSERT OR UPDATE OR DELETE ON orders FOR EACH STATEMENT EXECUTE FUNCTION count_firing();
	CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status',
		E'[*] --> WAIT_PAY\nWAIT_PAY --> EXPIRED : expire\nWAIT_PAY --> PAID : pay');
	VACUUM ANALYZE orders;
	END

# each kind moves rows of its own, and counts how many got that outcome
my %query = (
	transition => q{SELECT count(*) FILTER (WHERE f.outcome = '<outcome>') FROM generate_series(1, 1000) AS n,
		LATERAL idempotency.transition('orders', n, '{WAIT_PAY}', 'PAID') AS f},
	fire => q{SELECT count(*) FILTER (WHERE f.outcome = '<outcome>') FROM generate_series(1001, 2000) AS n,
		LATERAL idempotency.fire('orders', n, 'pay') AS f},
	transition_once => q{SELECT count(*) FILTER (WHERE f.outcome = '<outcome>') FROM generate_series(2001, 3000) AS n,
		LATERAL idempotency.transition_once('orders', n, '{WAIT_PAY}', 'PAID', 'pay-' || n) AS f},
	fire_once => q{SELECT count(*) FILTER (WHERE f.outcome = '<outcome>') FROM generate_series(3001, 4000) AS n,
		LATERAL idempotency.fire_once('orders', n, 'pay', 'pay-' || n) AS f},
	transition_batch => q{SELECT count(*) FILTER (WHERE f.outcome = '<outcome>') FROM idempotency.transition_batch('orders',
		ARRAY(SELECT n FROM generate_series(4001, 100000) AS n ORDER BY md5(n::text)), '{WAIT_PAY}', 'EXPIRED') AS f});

# Runs a query in a transaction of that mode, and returns what it cost.
sub cost
{
	my ($session, $mode, $sql) = @_;
	my %cost;
	my $counted = 'SELECT last_value FROM fired';
	my $fired = $session->query($counted);

	$session->query("BEGIN $mode");
	my $plan = $session->query('EXPLAIN (ANALYZE, WAL, FORMAT JSON) ' . $sql =~ s/\s+/ /gr);
	$cost{has_xid} = $session->query('SELECT pg_current_xact_id_if_assigned() IS NOT NULL');
	$cost{tuples_written} = $session->query(<<~'END');
		SELECT pg_stat_get_xact_tuples_inserted(c) + pg_stat_get_xact_tuples_updated(c) + pg_stat_get_xact_tuples_deleted(c)
		FROM CAST('orders'::regclass AS oid) AS c
		END
	$cost{locks_left} = $session->query(<<~'END');
		SELECT count(*) FROM pg_locks
		WHERE pid = pg_backend_pid() AND (relation = 'orders'::regclass OR locktype IN ('tuple', 'advisory'))
			AND mode NOT IN ('AccessShareLock', 'SIReadLock')
		END
	$session->query('COMMIT');
	# until then the counts of one transaction are added to those of the next
	$session->query('SELECT pg_stat_force_next_flush()');
	# the counters of the topmost node have those of the nodes below it in them
	($cost{wal_bytes}) = $plan =~ /"WAL Bytes": (\d+)/;
	$cost{triggers_fired} = $session->query($counted) - $fired;
	return \%cost;
}

my %nothing = (has_xid => 'f', tuples_written => 0, locks_left => 0, wal_bytes => 0, triggers_fired => 0);
my $session = Idempotency::Session->new($node);
my @kinds = sort keys %query;

# ---------- rows that move move every count ----------

for my $kind (@kinds)
{
	my $moved = cost($session, '', $query{$kind} =~ s/<outcome>/applied/r);

	is($moved->{has_xid}, 't', "$kind: rows that move have a transaction id");
	cmp_ok($moved->{$_}, '>', 0, "$kind: they count: $_") for qw(tuples_written locks_left wal_bytes triggers_fired);
}
is($session->query(q{SELECT string_agg(status || ' ' || n, ', ' ORDER BY status) FROM (SELECT status, count(*) AS n FROM orders GROUP BY 1) AS s}),
	'EXPIRED 96000, PAID 4000', '96,000 orders were expired in one call');
$session->query('VACUUM orders');
# the first read of what was just written sets hint bits: the server's own, and not measured here
$session->query($query{$_} =~ s/<outcome>/duplicate/r =~ s/\s+/ /gr) for @kinds;

# ---------- duplicates do not ----------

for my $kind (@kinds)
{
	my $sql = $query{$kind} =~ s/<outcome>/duplicate/r =~ s/\s+/ /gr;
	my $all = $kind eq 'transition_batch' ? 96_000 : 1000;

	is($session->query($sql), $all, "$kind: each of $all is a duplicate");
	is_deeply(cost($session, $_, $sql), \%nothing, "G3 quiet duplicates: $kind: they are free in '$_'")
	  for '', 'READ ONLY', 'ISOLATION LEVEL REPEATABLE READ', 'ISOLATION LEVEL SERIALIZABLE';
}

# Somebody has every row locked, and the table's columns are being indexed: duplicates wait for neither.
my $holder = Idempotency::Session->new($node);
$holder->query('BEGIN');
$holder->query('SELECT count(*) FROM (SELECT FROM orders FOR UPDATE) AS o');
$holder->query('LOCK TABLE orders IN SHARE MODE');
$session->query("SET lock_timeout = '1ms'");
for my $kind (@kinds)
{
	my $all = $kind eq 'transition_batch' ? 96_000 : 1000;

	is($session->query($query{$kind} =~ s/<outcome>/duplicate/r =~ s/\s+/ /gr), $all, "G3 quiet duplicates: $kind: they wait for nobody");
}
$holder->query('ROLLBACK');
$holder->quit;
$session->query('RESET lock_timeout');

# ---------- a standby ----------

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);

my %refused = (
	transition => q{SELECT outcome FROM idempotency.transition('orders', 1, '{WAIT_PAY}', 'EXPIRED', on_reject => 'return')},
	fire => q{SELECT outcome FROM idempotency.fire('orders', 1, 'expire', on_reject => 'return')},
	transition_once => q{SELECT outcome FROM idempotency.transition_once('orders', 1, '{WAIT_PAY}', 'PAID', 'other')},
	fire_once => q{SELECT outcome FROM idempotency.fire_once('orders', 1, 'pay', 'other')},
	transition_batch => q{SELECT outcome FROM idempotency.transition_batch('orders', ARRAY[1, 99999], '{WAIT_PAY}', 'EXPIRED')});

for my $mode ('', 'ISOLATION LEVEL REPEATABLE READ')
{
	my $there = Idempotency::Session->new($standby);

	for my $kind (@kinds)
	{
		my $all = $kind eq 'transition_batch' ? 96_000 : 1000;

		$there->query("BEGIN $mode");
		is($there->query($query{$kind} =~ s/<outcome>/duplicate/r =~ s/\s+/ /gr), $all, "G3 quiet duplicates: $kind: on a standby in '$mode'");
		is($there->query($refused{$kind}), 'ERROR:  25006', "G3 quiet duplicates: $kind: anything else raises 25006 in '$mode'");
		$there->query('ROLLBACK');
	}
	is($there->query('SELECT count(*) FROM idempotency.transition_history'), 2000, 'the history can be read there');
	$there->quit;
}

# After a failover the standby answers the same, and moves what has not moved.
$node->stop('immediate');
$standby->promote;
wait_until($standby, 'NOT pg_is_in_recovery()');
is($standby->safe_psql('postgres', $query{$_} =~ s/<outcome>/duplicate/r), 1000, "G12 durable: the promoted standby knows: $_")
  for qw(transition_once fire_once);
is( $standby->safe_psql('postgres', q{INSERT INTO orders VALUES (0, 'WAIT_PAY');
		SELECT outcome FROM idempotency.fire_once('orders', 0, 'pay', 'pay-0')}),
	'applied', 'G12 durable: it moves what has not moved');

done_testing();
