# A restored database remembers every operation, and so does a subscriber.
#
# Who restores a backup that has forgotten its operations runs every retry twice. The log of the extension's own is part of
# the dump because it was declared so; a log of the user's own is a table like any other. What was logged must be found
# again although the target has another OID after the restore. A replicated log makes the subscriber answer retries.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

my $node = start_node('main', streaming => 'logical', conf => 'max_connections = 50');
my $tables = <<~'END';
	CREATE SCHEMA app;
	CREATE TABLE app.account (id integer PRIMARY KEY, balance numeric NOT NULL DEFAULT 0);
	CREATE TABLE app."Stock é" (shop text, "Item" uuid, amount bigint NOT NULL DEFAULT 0, PRIMARY KEY (shop, "Item"));
	CREATE TABLE app.log (LIKE idempotency.operation_log INCLUDING ALL);
	END

$node->safe_psql('postgres', $tables);
$node->safe_psql('postgres', <<~'END');
	INSERT INTO app.account SELECT generate_series(1, 10);
	INSERT INTO app."Stock é" VALUES ('Köln', '00000000-0000-0000-0000-000000000001', 100);
	END

# One statement for each kind of key, scope and log; each gives the name of its case first.
my %calls = (
	'default scope' => q{idempotency.accumulate('app.account', 1 + n % 10, 'balance', n / 4.0, 'default ' || n)},
	'named scope' => q{idempotency.accumulate('app.account', 1 + n % 10, 'balance', n, 'named ' || n, scope => 'points', ttl => '1 year')},
	'key as text' => q{idempotency.accumulate('app.account', '7'::text, 'balance', n, 'text ' || n)},
	'key as jsonb' => q{idempotency.accumulate('app.account', '{"id": 3}'::jsonb, 'balance', -n, 'jsonb ' || n)},
	'key of two columns' =>
	  q{idempotency.accumulate('app."Stock é"', '{"shop": "Köln", "Item": "00000000-0000-0000-0000-000000000001"}'::jsonb, 'amount', n, 'Größe ' || n)},
	'limits' => q{idempotency.accumulate('app.account', 1, 'balance', 1, 'limit ' || n, minimum => 0, maximum => 1e9)},
	'rejected' =>
	  q{idempotency.accumulate('app.account', 1, 'balance', -1e9, 'rejected ' || n, minimum => 0, on_reject => 'record')},
	"a log of the user's own" =>
	  q{idempotency.accumulate('app.account', 2, 'balance', n, 'own ' || n, log => 'app.log')},
);

sub answers
{
	my ($server, $dbname) = @_;

	return join "\n", map {
		"$_: " . $server->safe_psql($dbname,
			"SELECT n, f.outcome, f.value, f.applied_at FROM generate_series(1, 30) AS n, LATERAL $calls{$_} AS f ORDER BY n")
	} sort keys %calls;
}

my $applied = answers($node, 'postgres');
my $duplicates = $applied =~ s/applied\|/duplicate|/gr;
my $balances = 'SELECT (SELECT sum(balance) FROM app.account), (SELECT sum(amount) FROM app."Stock é")';
my $sums = $node->safe_psql('postgres', $balances);

unlike($applied, qr/duplicate/, 'the operations apply');
is(answers($node, 'postgres'), $duplicates, 'and are duplicates then');

# What a restored database must answer, and must not have done meanwhile.
sub is_remembered
{
	my ($server, $dbname, $name) = @_;

	is(answers($server, $dbname), $duplicates,
		"G12 durable: $name: every operation is a duplicate with the recorded value and time");
	is($server->safe_psql($dbname, $balances), $sums, "G1 once: $name: and the sums are what they were");

	my ($result, $out, $error) = $server->psql($dbname,
		"\\set VERBOSITY sqlstate\n" . q{SELECT * FROM idempotency.accumulate('app.account', 3, 'balance', 99, 'default 2')});
	like($error, qr/ID001/, "G4 no impostor: $name: another delta raises ID001");
	($result, $out, $error) = $server->psql($dbname,
		"\\set VERBOSITY sqlstate\n" . q{SELECT * FROM idempotency.accumulate('app.account', 4, 'balance', 2 / 4.0, 'default 2')});
	like($error, qr/ID001/, "G4 no impostor: $name: another row raises ID001");
	return;
}

sub new_is_applied
{
	my ($server, $dbname, $name) = @_;

	is($server->safe_psql($dbname, q{SELECT outcome FROM idempotency.accumulate('app.account', 1, 'balance', 1, 'new')}),
		'applied', "G12 durable: $name: a new id applies");
	return;
}

# The OIDs of the tables move, so that nothing can match by them.
sub create_database
{
	my ($dbname) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $dbname TEMPLATE template0");
	$node->safe_psql($dbname, 'CREATE TABLE in_the_way (); DROP TABLE in_the_way;');
	return;
}

# ---------- schema and data ----------

my $dump = $node->basedir . '/dump';

$node->command_ok([ 'pg_dump', '-f', "$dump.sql", 'postgres' ], 'pg_dump as SQL');
create_database('plain');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', 'plain', '-f', "$dump.sql" ], 'restored by psql');
isnt($node->safe_psql('plain', q{SELECT 'app.account'::regclass::oid}),
	$node->safe_psql('postgres', q{SELECT 'app.account'::regclass::oid}), 'the target has another OID');
is_remembered($node, 'plain', 'a plain dump');
new_is_applied($node, 'plain', 'a plain dump');

$node->command_ok([ 'pg_dump', '-Fd', '-j', '2', '-f', "$dump.directory", 'postgres' ], 'pg_dump into a directory');
create_database('directory');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-j', '2', '-d', 'directory', "$dump.directory" ],
	'restored by pg_restore in parallel');
is_remembered($node, 'directory', 'a dump in directory format');
new_is_applied($node, 'directory', 'a dump in directory format');

# ---------- data only ----------

$node->command_ok([ 'pg_dump', '--data-only', '-f', "$dump.data.sql", 'postgres' ], 'pg_dump --data-only');
create_database('data');
$node->safe_psql('data', "CREATE EXTENSION idempotency;\n$tables");
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', 'data', '-f', "$dump.data.sql" ], 'the data restored by psql');
is_remembered($node, 'data', 'a data-only dump');

# A dump of a restored database is as good as the first.
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dump.again", 'data' ], 'pg_dump of what was restored');
create_database('again');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', 'again', "$dump.again" ], 'restored again');
is_remembered($node, 'again', 'a dump of a restored database');
new_is_applied($node, 'data', 'a data-only dump');

# ---------- logical replication ----------

my $subscriber = start_node('subscriber', streaming => 'logical', conf => 'max_connections = 50');

$subscriber->safe_psql('postgres', $tables);
$node->safe_psql('postgres', <<~'END');
	CREATE PUBLICATION everything FOR TABLE idempotency.operation_log, app.log, app.account, app."Stock é";
	END
$subscriber->safe_psql('postgres', sprintf q{CREATE SUBSCRIPTION everything CONNECTION '%s' PUBLICATION everything},
	$node->connstr('postgres') =~ s/'/''/gr);
$subscriber->wait_for_subscription_sync($node, 'everything');
is_remembered($subscriber, 'postgres', 'the first copy of logical replication');

# what comes later comes as a stream of changes
for (values %calls)
{
	s/ \|\| n/ || 'later ' || n/;
}
$applied = answers($node, 'postgres');
unlike($applied, qr/duplicate/, 'more operations apply on the publisher');
$duplicates = $applied =~ s/applied\|/duplicate|/gr;
$sums = $node->safe_psql('postgres', $balances);
$node->wait_for_catchup('everything');
is(answers($subscriber, 'postgres'), $duplicates,
	'G12 durable: replicated changes: every operation is a duplicate on the subscriber with the recorded value and time');
is($subscriber->safe_psql('postgres', $balances), $sums, 'G1 once: replicated changes: the sums are those of the publisher');

# what is deleted and renamed on the publisher follows
is($node->safe_psql('postgres', q{SELECT idempotency.forget('points', 'named 1')}), 't', 'an operation is forgotten on the publisher');
is($node->safe_psql('postgres', q{SELECT idempotency.rename_scope('points', 'loyalty') > 0}), 't', 'a scope is renamed there');
$node->wait_for_catchup('everything');
is( $subscriber->safe_psql('postgres', q{SELECT scope, count(*) FROM idempotency.operation_log WHERE scope IN ('points', 'loyalty') GROUP BY 1}),
	'loyalty|59', 'G12 durable: the subscriber follows');

# failover to the subscriber: it is on its own from here
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION everything');
new_is_applied($subscriber, 'postgres', 'a subscriber that takes over');

done_testing();
