# A duplicate of insert_or_return costs nothing that outlives it, and is answered where nothing may be written.
#
# 40,000 duplicates on a table with a smallserial column: by INSERT ... ON CONFLICT that many use the sequence up. What they
# cost is read from the server's own counters, and every count is first seen to move when rows are new.

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
	CREATE TABLE item (
		id smallserial PRIMARY KEY,
		tenant integer NOT NULL,
		name text NOT NULL,
		note jsonb,
		made timestamptz NOT NULL DEFAULT clock_timestamp(),
		deleted_at timestamptz);
	CREATE UNIQUE INDEX ON item (tenant, lower(name)) WHERE deleted_at IS NULL;
	CREATE FUNCTION count_firing() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN PERFORM nextval('public.fired'); RETURN NEW; END $$;
	CREATE TRIGGER b BEFORE INSERT OR UPDATE OR DELETE ON item FOR EACH ROW EXECUTE FUNCTION count_firing();
	CREATE TRIGGER a AFTER INSERT OR UPDATE OR DELETE ON item FOR EACH ROW EXECUTE FUNCTION count_firing();
	CREATE TRIGGER s BEFORE INSERT OR UPDATE OR DELETE ON item FOR EACH STATEMENT EXECUTE FUNCTION count_firing();
	END

# 1,000 rows; each retry spells the name in another way that is the same key
my $new_values = q{jsonb_build_object('tenant', n % 10, 'name', 'Item ' || n % 1000, 'note', n % 1000)};
my %query = (
	single => <<~END =~ s/\s+/ /gr,
		SELECT count(f.stored) FILTER (WHERE f.inserted = <inserted>) FROM generate_series(1, <calls>) AS n,
			LATERAL idempotency.insert_or_return(NULL::item, $new_values, must_match => '{note}') AS f
		END
	batch => <<~END =~ s/\s+/ /gr);
		SELECT count(f.stored) FILTER (WHERE f.inserted = <inserted>) FROM idempotency.insert_or_return_batch(NULL::item,
			(SELECT jsonb_agg($new_values) FROM generate_series(1, <calls>) AS n), must_match => '{note}') AS f
		END

sub query
{
	my ($kind, $calls, $inserted) = @_;

	return $query{$kind} =~ s/<calls>/$calls/r =~ s/<inserted>/$inserted/r;
}

# Runs a query in a transaction of that mode, and returns what it cost.
sub cost
{
	my ($session, $mode, $sql) = @_;
	my %cost;
	my $counted = 'SELECT f.last_value, i.last_value FROM fired AS f, item_id_seq AS i';
	my ($fired, $ids) = split /\|/, $session->query($counted);

	$session->query("BEGIN $mode");
	my $plan = $session->query("EXPLAIN (ANALYZE, WAL, FORMAT JSON) $sql");
	$cost{has_xid} = $session->query('SELECT pg_current_xact_id_if_assigned() IS NOT NULL');
	$cost{tuples_written} = $session->query(<<~'END');
		SELECT pg_stat_get_xact_tuples_inserted(c) + pg_stat_get_xact_tuples_updated(c) + pg_stat_get_xact_tuples_deleted(c)
		FROM CAST('item'::regclass AS oid) AS c
		END
	$cost{locks_left} = $session->query(<<~'END');
		SELECT count(*) FROM pg_locks
		WHERE pid = pg_backend_pid() AND (relation = 'item'::regclass OR locktype IN ('tuple', 'advisory'))
			AND mode NOT IN ('AccessShareLock', 'SIReadLock')
		END
	$session->query('COMMIT');
	# until then the counts of one transaction are added to those of the next
	$session->query('SELECT pg_stat_force_next_flush()');

	# the counters of the topmost node have those of the nodes below it in them
	($cost{wal_bytes}) = $plan =~ /"WAL Bytes": (\d+)/;
	my ($fired_now, $ids_now) = split /\|/, $session->query($counted);
	$cost{triggers_fired} = $fired_now - $fired;
	$cost{sequence_values} = $ids_now - $ids;
	return \%cost;
}

my %nothing = (
	has_xid => 'f',
	tuples_written => 0,
	locks_left => 0,
	wal_bytes => 0,
	triggers_fired => 0,
	sequence_values => 0);

# ---------- new rows move every count ----------

my $session = Idempotency::Session->new($node);
my $new = cost($session, '', query('single', 1000, 'true'));

is($new->{has_xid}, 't', 'new rows have a transaction id');
cmp_ok($new->{tuples_written}, '>=', 1000, 'they are written');
cmp_ok($new->{locks_left}, '>', 0, 'they lock the table');
cmp_ok($new->{wal_bytes}, '>', 100_000, 'they write WAL');
cmp_ok($new->{triggers_fired}, '>=', 3000, 'they fire triggers');
cmp_ok($new->{sequence_values}, '>=', 999, 'they use up sequence values');
is($session->query('SELECT count(*) FROM item'), 1000, '1,000 rows are there');

$session->query('VACUUM item');
# the first read of what was just written sets hint bits: the server's own, and not measured here
$session->query(query('single', 1000, 'false'));

# ---------- duplicates do not ----------

my $sizes = q{SELECT pg_total_relation_size('item'), (SELECT last_value FROM item_id_seq), (SELECT max(ctid) FROM item)};
my $sizes_before = $session->query($sizes);

is_deeply(cost($session, '', query('single', 40_000, 'false')),
	\%nothing, 'G3 quiet duplicates: 40,000 on a smallserial table are free, and last_value has not moved');
for my $kind ('single', 'batch')
{
	for my $mode ('READ ONLY', 'ISOLATION LEVEL REPEATABLE READ', 'ISOLATION LEVEL SERIALIZABLE',
		'ISOLATION LEVEL SERIALIZABLE READ ONLY')
	{
		is_deeply(cost($session, $mode, query($kind, 4000, 'false')),
			\%nothing, "G3 quiet duplicates: 4,000 are free in $mode: $kind");
	}
}
is($session->query(query('single', 40_000, 'false')), 40_000, 'each of 40,000 got a row, and inserted none');
is($session->query(query('batch', 40_000, 'false')), 40_000, 'so did each of a batch of 40,000');
is($session->query($sizes), $sizes_before, 'G3 quiet duplicates: nothing has grown, and no sequence has moved');

# The usual way, for comparison: the counts of this test would have shown it.
is($session->query(<<~'END'), 'ERROR:  2200H', 'ON CONFLICT DO NOTHING uses up the sequence with as many duplicates');
	INSERT INTO item (tenant, name) SELECT n % 10, 'item ' || n % 1000 FROM generate_series(1, 40000) AS n
	ON CONFLICT DO NOTHING
	END

# The same in the form that a driver sends, one call for each transaction.
my $next_xid = 'SELECT pg_snapshot_xmax(pg_current_snapshot())';
my $next_xid_before = $node->safe_psql('postgres', $next_xid);
my $errors_from = offset_of_log($node);
run_pgbench(
	$node,
	clients => 2,
	transactions => 1000,
	options => ['--protocol=prepared'],
	scripts => { duplicate => <<~END });
		\\set n random(1, 1000)
		SELECT * FROM idempotency.insert_or_return(NULL::item, @{[ $new_values =~ s/\bn\b/:n/gr ]});
		END
is($node->safe_psql('postgres', $next_xid),
	$next_xid_before, 'G3 quiet duplicates: 2,000 prepared statements used no transaction id of the server');
is_deeply(error_codes($node, $errors_from), {}, 'and met no error');

# ---------- a standby, READ ONLY, and what cannot be answered there ----------

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);

my $stored = 'SELECT (f.stored).* FROM generate_series(1, 1000) AS n, '
  . "LATERAL idempotency.insert_or_return(NULL::item, $new_values) AS f ORDER BY n";
my $expected = $node->safe_psql('postgres', 'SELECT i.* FROM generate_series(1, 1000) AS n, '
	  . q{LATERAL (SELECT * FROM item WHERE name = 'Item ' || n % 1000) AS i ORDER BY n});

for my $where (
	[ 'on a standby', $standby, '' ],
	[ 'on a standby in REPEATABLE READ', $standby, 'ISOLATION LEVEL REPEATABLE READ' ],
	[ 'in READ ONLY', $node, 'READ ONLY' ],
	[ 'in READ ONLY of SERIALIZABLE', $node, 'ISOLATION LEVEL SERIALIZABLE READ ONLY' ])
{
	my ($name, $server, $mode) = @$where;
	my $there = Idempotency::Session->new($server);
	my $ask = sub {
		$there->query("BEGIN $mode");
		my $answer = $there->query($_[0]);
		$there->query('ROLLBACK');
		return $answer;
	};
	my $call = sub {
		my ($call_values, $more) = @_;

		return $ask->("SELECT inserted FROM idempotency.insert_or_return(NULL::item, '$call_values'" . ($more // '') . ')');
	};

	is($ask->($stored), $expected, "G3 quiet duplicates: $name: each of 1,000 gets its row");
	is($ask->(query('batch', 1000, 'false')), 1000, "G3 quiet duplicates: $name: so does a batch");
	is($call->('{"tenant": 1, "name": "item 1", "note": 7}', q{, must_match => '{note}'}),
		'ERROR:  ID001', "G4 no impostor: $name: a note that differs raises ID001");
	is($call->('{"tenant": 1, "name": "new"}', $_), 'ERROR:  25006', "G3 quiet duplicates: $name: a new row raises 25006$_")
	  for '', q{, wait => '0'};
	is( $ask->(<<~'END'), 'ERROR:  25006', "G3 quiet duplicates: $name: so does a batch with one");
		SELECT inserted FROM idempotency.insert_or_return_batch(NULL::item,
			'[{"tenant": 1, "name": "item 1"}, {"tenant": 1, "name": "new"}]')
		END
	is($call->('{"tenant": 1, "name": null}'), 'ERROR:  22004', "G10 bad input: $name: NULL in the key raises 22004");
	is($call->('{"tenant": 1, "nickname": "x"}'), 'ERROR:  42703', "G10 bad input: $name: an unknown column raises 42703");
	$there->quit;
}
is($session->query('SELECT count(*) FROM item'), 1000, 'nothing was written by it');

# After a failover the standby answers the same, and inserts what is new.
$node->stop('immediate');
$standby->promote;
wait_until($standby, 'NOT pg_is_in_recovery()');
is($standby->safe_psql('postgres', $stored), $expected, 'G12 durable: the promoted standby has each row');
is($standby->safe_psql('postgres',
	q{ALTER SEQUENCE item_id_seq RESTART WITH 2000;
	SELECT inserted FROM idempotency.insert_or_return(NULL::item, '{"tenant": 1, "name": "new"}')}),
	't', 'G12 durable: it inserts what is new');

done_testing();
