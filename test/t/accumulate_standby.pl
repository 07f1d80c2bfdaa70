# A standby answers retries, and is ready to take over.
#
# Reads go to standbys, and retries follow a failover. So a duplicate is answered on a standby as on the primary, an
# impostor is told so, and anything that would have to write is refused with the SQLSTATE by which a client knows to go to
# the primary. After promotion the log is what was replicated: retries of it are duplicates, what the lost primary
# had not sent applies, and new ids apply.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

my $primary = start_node('primary', streaming => 1);

add_account_table($primary, 10);
$primary->backup('backup');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

my $call = accumulate_call('1 + n % 10', 'round(n / 7.0, n % 5)', "'op-' || n");
my $all = "SELECT n, f.outcome, f.value, f.applied_at FROM generate_series(1, 500) AS n, LATERAL $call AS f ORDER BY n";
my $applied = $primary->safe_psql('postgres', $all);
my $rejected = accumulate_call(1, -1000000, "'rejected'", "minimum => 0, on_reject => 'record'");

like($applied, qr/^1\|applied\|/, 'operations apply on the primary');
unlike($applied, qr/duplicate/, 'all of them');
$primary->safe_psql('postgres', "SELECT * FROM $rejected");
$primary->wait_for_catchup($standby);

# ---------- on the standby, and in a READ ONLY transaction ----------

for my $where (
	[ 'on a standby', $standby, '' ],
	[ 'on a standby in REPEATABLE READ', $standby, 'ISOLATION LEVEL REPEATABLE READ' ],
	[ 'in READ ONLY', $primary, 'READ ONLY' ],
	[ 'in READ ONLY of SERIALIZABLE', $primary, 'ISOLATION LEVEL SERIALIZABLE READ ONLY' ])
{
	my ($name, $node, $mode) = @$where;
	my $session = Idempotency::Session->new($node);
	my $ask = sub {
		$session->query("BEGIN $mode");
		my $answer = $session->query("SELECT $_[0]");
		$session->query('ROLLBACK');
		return $answer;
	};

	is($ask->($all =~ s/^SELECT//r), $applied =~ s/applied/duplicate/gr,
		"G3 quiet duplicates: $name: each of 500 is answered with its recorded value and time");
	is($ask->("outcome FROM $rejected"), 'rejected', "G3 quiet duplicates: $name: a recorded rejection is answered");
	is($ask->('state FROM ' . "idempotency.lookup('test', 'op-1')"), 'done', "G3 quiet duplicates: $name: lookup() works");
	is($ask->('outcome FROM ' . accumulate_call(2, 77, "'op-1'")),
		'ERROR:  ID001', "G4 no impostor: $name: another delta raises ID001");
	is($ask->('outcome FROM ' . accumulate_call(3, 'round(1 / 7.0, 1)', "'op-1'")),
		'ERROR:  ID001', "G4 no impostor: $name: another row raises ID001");

	# what is not a recorded duplicate, whichever way it would have to go
	is($ask->('outcome FROM ' . accumulate_call(1, 1, "'new'", $_)), 'ERROR:  25006', "G3 quiet duplicates: $name: a new id raises 25006 ($_)")
	  for 'minimum => NULL', "wait => '0'", "on_reject => 'record', maximum => -1", 'create_missing => true';
	is($ask->('outcome FROM ' . accumulate_call(99, 1, "'new'")), 'ERROR:  25006', "G3 quiet duplicates: $name: so does one for a missing row");
	is($ask->("idempotency.forget('test', 'op-1')"), 'ERROR:  25006', "$name: forget() raises 25006");
	is($ask->("idempotency.rename_scope('test', 'other')"), 'ERROR:  25006', "$name: rename_scope() raises 25006");

	# G10: bad input is told as such even where nothing could be written
	is($ask->('outcome FROM ' . accumulate_call(1, 1, "' '")), 'ERROR:  ID002', "G10 bad input: $name: a blank id raises ID002");
	$session->quit;
}
is($primary->safe_psql('postgres', "SELECT count(*) FROM idempotency.operation_log"), 501, 'nothing was written by it');

# ---------- expiry on the standby ----------

# Expired on the primary is expired on the standby: it goes by its own clock, and needs no purge to know.
my $expiring = accumulate_call(1, 1, "'expiring'", "ttl => '1 day'");
$primary->safe_psql('postgres', "SELECT * FROM $expiring");
$primary->wait_for_catchup($standby);
is(scalar $standby->psql('postgres', "SELECT * FROM $expiring"), 0, 'G7 expiry: an id that lives is a duplicate on the standby');
$primary->safe_psql('postgres',
	q{UPDATE idempotency.operation_log SET expires_at = clock_timestamp() WHERE operation_id = 'expiring'});
$primary->wait_for_catchup($standby);
my ($result, $out, $error) = $standby->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT * FROM $expiring");
like($error, qr/25006/, 'G7 expiry: an expired id is absent on the standby too, purged or not');
is($standby->safe_psql('postgres', "SELECT idempotency.lookup('test', 'expiring') IS NULL"), 't',
	'G7 expiry: lookup() on the standby does not show it');

# ---------- failover ----------

# The standby is down when the primary does its last operation, and never hears of it.
$standby->stop;
is($primary->safe_psql('postgres', 'SELECT outcome FROM ' . accumulate_call(5, 1000, "'lost'")),
	'applied', 'the primary applies an operation that is not replicated');
$primary->kill9;
$standby->start;
$standby->promote;
wait_until($standby, 'NOT pg_is_in_recovery()');

is($standby->safe_psql('postgres', $all), $applied =~ s/applied/duplicate/gr,
	'G12 durable: on the promoted standby every retry is a duplicate with its recorded result');
is($standby->safe_psql('postgres', 'SELECT outcome FROM ' . accumulate_call(5, 1000, "'lost'")),
	'applied', 'G1 once: what was lost with the primary counts as not made, and its retry applies');
is($standby->safe_psql('postgres', 'SELECT outcome FROM ' . accumulate_call(5, 1000, "'lost'")),
	'duplicate', 'G1 once: and then it is done');
is($standby->safe_psql('postgres', 'SELECT outcome FROM ' . accumulate_call(5, 1, "'new'")),
	'applied', 'G12 durable: new ids apply on the promoted standby');
is($standby->safe_psql('postgres', "SELECT outcome FROM $expiring"), 'applied', 'G7 expiry: the expired id applies again');
is($standby->safe_psql('postgres', <<~'END'), 0, 'G1 once: the balances are exact after the failover');
	SELECT count(*) FROM account AS a WHERE balance <>
		(SELECT sum(round(n / 7.0, n % 5)) FROM generate_series(1, 500) AS n WHERE 1 + n % 10 = a.id)
		+ CASE id WHEN 5 THEN 1001 WHEN 1 THEN 2 ELSE 0 END
	END

done_testing();
