# A duplicate costs nothing that outlives it: no transaction id, no WAL, no tuple, no trigger, no sequence value.
#
# Retries are most of the traffic when something is wrong, so they must not load the server, bloat tables or stop in a
# read-only transaction. 10,000 of them are counted by the server's own counters, and every count is first seen to move
# when the operations take effect.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

# What is counted must be this test's doing.
my $node = start_node('main', conf => "autovacuum = off");

add_account_table($node, 100);
$node->safe_psql('postgres', <<~'END');
	CREATE SEQUENCE fired;
	CREATE SEQUENCE defaulted;
	ALTER TABLE account ADD COLUMN made bigint DEFAULT nextval('defaulted');
	CREATE FUNCTION count_firing() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN PERFORM nextval('public.fired'); RETURN NEW; END $$;
	CREATE TABLE log (LIKE idempotency.operation_log INCLUDING ALL);
	CREATE TRIGGER b BEFORE INSERT OR UPDATE OR DELETE ON account FOR EACH ROW EXECUTE FUNCTION count_firing();
	CREATE TRIGGER a AFTER INSERT OR UPDATE OR DELETE ON account FOR EACH ROW EXECUTE FUNCTION count_firing();
	CREATE TRIGGER s BEFORE INSERT OR UPDATE OR DELETE ON account FOR EACH STATEMENT EXECUTE FUNCTION count_firing();
	CREATE TRIGGER a AFTER INSERT OR UPDATE OR DELETE ON log FOR EACH ROW EXECUTE FUNCTION count_firing();
	CREATE TRIGGER s BEFORE INSERT OR UPDATE OR DELETE ON log FOR EACH STATEMENT EXECUTE FUNCTION count_firing();
	END

# Accounts 1 to 100 exist, 101 to 110 are created. Numbers come with 0 to 4 decimals, so that 1.5 and 1.50 are told apart.
my $call = <<~'END' =~ s/\s+/ /gr;
	idempotency.accumulate('account', 1 + n % 110, 'balance', round(n / 7.0, n % 5), 'op-' || n,
		create_missing => true, scope => 'free', log => 'log')
	END

# Runs 10,000 calls in one statement of a session and returns what they cost.
sub cost
{
	my ($session, $mode) = @_;
	my %cost;
	my ($fired, $defaulted) = split /\|/, $session->query('SELECT f.last_value, d.last_value FROM fired f, defaulted d');

	$session->query("BEGIN $mode");
	my $plan = $session->query(<<~END);
		EXPLAIN (ANALYZE, WAL, FORMAT JSON)
		SELECT count(f.outcome) FROM generate_series(1, 10000) AS n, LATERAL $call AS f
		END
	$cost{has_xid} = $session->query('SELECT pg_current_xact_id_if_assigned() IS NOT NULL');
	# of this transaction, of both tables and their indexes
	$cost{tuples_written} = $session->query(<<~'END');
		SELECT sum(pg_stat_get_xact_tuples_inserted(c) + pg_stat_get_xact_tuples_updated(c) + pg_stat_get_xact_tuples_deleted(c))
		FROM unnest('{account, log}'::regclass[]) AS c
		END
	$session->query('COMMIT');

	# the counters of the topmost node have those of the nodes below it in them
	($cost{wal_bytes}) = $plan =~ /"WAL Bytes": (\d+)/;
	($cost{wal_records}) = $plan =~ /"WAL Records": (\d+)/;
	my ($fired_now, $defaulted_now) =
	  split /\|/, $session->query('SELECT f.last_value, d.last_value FROM fired f, defaulted d');
	$cost{triggers_fired} = $fired_now - $fired;
	$cost{sequence_values} = $defaulted_now - $defaulted;
	$session->query('SELECT pg_stat_force_next_flush()');
	$cost{dead_tuples} = $session->query(
		"SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE relid IN ('account'::regclass, 'log'::regclass)");
	return \%cost;
}

my $session = Idempotency::Session->new($node);
my $applied = cost($session, '');

is($node->safe_psql('postgres', "SELECT count(*) FROM log WHERE state = 'done'"), 10000, '10,000 operations took effect');
is($applied->{has_xid}, 't', 'operations that take effect have a transaction id');
cmp_ok($applied->{wal_bytes}, '>', 1_000_000, 'they write WAL');
is($applied->{tuples_written}, 20000, 'they write one tuple on the target and one in the log each');
cmp_ok($applied->{dead_tuples}, '>', 9000, 'they leave dead tuples');
cmp_ok($applied->{triggers_fired}, '>=', 40000, 'they fire triggers');
cmp_ok($applied->{sequence_values}, '>=', 9, 'they use up sequence values');

$session->query('VACUUM account, log');

# The first read of what was just written sets hint bits: the server's own, and not logged here, but not measured either.
$session->query("SELECT count(f.outcome) FROM generate_series(1, 10000) AS n, LATERAL $call AS f");

my $sizes = q{SELECT pg_total_relation_size('account'), pg_total_relation_size('log')};
my $sizes_before = $session->query($sizes);

for my $mode ('', 'READ ONLY', 'ISOLATION LEVEL REPEATABLE READ', 'ISOLATION LEVEL SERIALIZABLE',
	'ISOLATION LEVEL SERIALIZABLE READ ONLY')
{
	is_deeply(
		cost($session, $mode),
		{
			has_xid => 'f',
			wal_bytes => 0,
			wal_records => 0,
			tuples_written => 0,
			triggers_fired => 0,
			sequence_values => 0,
			dead_tuples => 0,
		},
		'G3 quiet duplicates: 10,000 of them are free' . ($mode ? " in $mode" : ''));
}
is($session->query($sizes), $sizes_before, 'G3 quiet duplicates: nothing has grown');

# The same in the statement forms that a driver sends, one call per transaction.
my $next_xid = 'SELECT pg_snapshot_xmax(pg_current_snapshot())';
my $next_xid_before = $node->safe_psql('postgres', $next_xid);
run_pgbench(
	$node,
	clients => 2,
	transactions => 1000,
	options => ['--protocol=prepared'],
	scripts => { duplicate => "\\set n random(1, 10000)\nSELECT * FROM " . $call =~ s/\bn\b/:n/gr . ";\n" });
is($node->safe_psql('postgres', $next_xid),
	$next_xid_before, 'G3 quiet duplicates: 2,000 prepared statements used no transaction id of the server');
is($node->safe_psql('postgres', 'SELECT count(*) FROM log'), 10000, 'they were all duplicates');

# The recorded result, exactly: every digit of the value, every microsecond of the time.
is( $session->query(<<~END),
	SELECT count(*), count(*) FILTER (WHERE f.outcome = 'duplicate'),
		count(*) FILTER (WHERE f.value::text = l.value::text AND f.applied_at = l.completed_at)
	FROM generate_series(1, 10000) AS n, LATERAL $call AS f, log AS l
	WHERE l.scope = 'free' AND l.operation_id = 'op-' || n
	END
	'10000|10000|10000',
	'G3 quiet duplicates: each returns the recorded value and time');
is( $session->query(<<~'END'),
	SELECT count(*) FROM (
		SELECT DISTINCT ON (target_key) target_key, value FROM log ORDER BY target_key, completed_at DESC, value DESC) AS last
	JOIN account AS a ON a.id = (last.target_key ->> 'id')::integer
	WHERE a.balance::text = last.value::text
	END
	110,
	'the last recorded value of every account is its balance, digit by digit');

# A rejection that was recorded is replayed as cheaply, and so is an answer after a change of the limits' outcome.
my $rejected = accumulate_call(1, -1000000, "'too much'", "minimum => 0, on_reject => 'record'");
is($session->query("SELECT outcome FROM $rejected"), 'rejected', 'a rejection is recorded');
$session->query("SELECT outcome FROM $rejected");
$session->query('BEGIN');
my $plan = $session->query("EXPLAIN (ANALYZE, WAL, FORMAT JSON) SELECT f.outcome FROM $rejected AS f");
is($session->query('SELECT pg_current_xact_id_if_assigned() IS NULL'), 't', 'G3 quiet duplicates: a replayed rejection has no transaction id');
like($plan, qr/"WAL Bytes": 0\b/, 'G3 quiet duplicates: a replayed rejection writes no WAL');
$session->query('COMMIT');

# What is not a duplicate is refused where nothing may be written, and what is an impostor is told so.
$session->query('BEGIN READ ONLY');
is($session->query('SELECT * FROM ' . accumulate_call(1, 1, "'new'")), 'ERROR:  25006', 'a new operation in READ ONLY raises 25006');
$session->query('ROLLBACK');
$session->query('BEGIN READ ONLY');
is($session->query('SELECT * FROM ' . $call =~ s/\bn\b/1/gr =~ s/round\(.*?\),/77,/r),
	'ERROR:  ID001', 'G4 no impostor: another request of the same id raises ID001 in READ ONLY too');
$session->query('ROLLBACK');
$session->quit;

done_testing();
