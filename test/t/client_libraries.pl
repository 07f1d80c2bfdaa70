# Client libraries that send parameters of unknown type: psycopg 3, node-postgres and JDBC.
#
# A library that does not know the type of a parameter leaves it to the server, which has to find the one function
# that is meant, and the types. The same statements run through each library, prepared, by a program in test/clients:
# a line in is a statement and its parameters, a line out its answer. A library that is not there is skipped.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Cwd qw(abs_path);
use File::Temp ();
use Idempotency::Test;
use IPC::Run qw(run);
use Test::More;

my $clients = abs_path("$FindBin::Bin/../clients");
my $jdbc_driver = '/usr/share/java/postgresql.jar';

# Debian's python3 has Debian's psycopg, whatever else is first in PATH.
my ($python) = grep { quietly($_, '-c', 'import psycopg') } qw(/usr/bin/python3 python3);

my $schema = q{
	CREATE EXTENSION idempotency;
	CREATE TABLE orders (id int PRIMARY KEY, note text);
	CREATE TABLE account (id bigint PRIMARY KEY, balance numeric NOT NULL DEFAULT 0);
	CREATE TABLE seat (tenant uuid, number int, used bigint NOT NULL DEFAULT 0, PRIMARY KEY (tenant, number));
	CREATE TABLE event (id text PRIMARY KEY, points int);
	CREATE TRIGGER zz_ignore_duplicates BEFORE INSERT ON event
		FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('id');
	INSERT INTO account VALUES (42);
};

my $get_or_create = 'SELECT inserted::text, (stored).note FROM idempotency.insert_or_return(NULL::orders, ?)';
my $by_key = 'SELECT inserted::text, (stored).note FROM idempotency.insert_or_return(NULL::orders, ?, ?, ?, ?)';
my $cast = 'SELECT inserted::text, (stored).note FROM idempotency.insert_or_return(NULL::orders, ?::jsonb, key => ?::name[])';
my $batch = q{SELECT string_agg(inserted::text, ',' ORDER BY item), sum((stored).id)
	FROM idempotency.insert_or_return_batch(NULL::orders, ?, must_match => ?)};
my $accumulate = 'SELECT outcome, value FROM idempotency.accumulate(?, ?, ?, ?, ?)';
my $withdraw = 'SELECT outcome, value FROM idempotency.accumulate(?, ?, ?, ?, ?,
	minimum => ?, on_reject => ?, scope => ?, ttl => ?, wait => ?, create_missing => ?)';
my $seat = 'SELECT outcome, value FROM idempotency.accumulate(?, ?::jsonb, ?, ?, ?, maximum => ?, create_missing => ?)';
my $lookup = 'SELECT state, value FROM idempotency.lookup(?, ?)';
my $insert = 'INSERT INTO event VALUES (?, ?), (?, ?)';

my $first_seat = '{"tenant": "00000000-0000-0000-0000-000000000001", "number": 1}';

# what it shows, the answer, the statement, its parameters
my @steps = (
	[ 'insert_or_return: new', 'true first', $get_or_create, '{"id": 1, "note": "first"}' ],
	[ 'insert_or_return: again', 'false first', $get_or_create, '{"id": 1, "note": "second"}' ],
	[ 'insert_or_return: non-ASCII', 'true Grüße, 鍵', $get_or_create, '{"id": 2, "note": "Grüße, 鍵"}' ],
	[ 'insert_or_return: every argument', 'false first', $by_key, '{"id": 1, "note": "first"}', '{id}', '{note}', '200 ms' ],
	[ 'insert_or_return: an impostor', 'ID001', $by_key, '{"id": 1, "note": "second"}', '{id}', '{note}', '200 ms' ],
	[ 'insert_or_return: no JSON', '22P02', $get_or_create, 'id = 1' ],
	[ 'insert_or_return: a string that is cast', 'true third', $cast, 'string:{"id": 3, "note": "third"}', 'string:{id}' ],
	[ 'insert_or_return: the same cast again', 'false third', $cast, 'string:{"id": 3, "note": "4th"}', 'string:{id}' ],
	[ 'insert_or_return_batch: new', 'true,true,false 30', $batch, '[{"id": 11}, {"id": 8}, {"id": 11}]', '{id}' ],
	[ 'insert_or_return_batch: again', 'false,true,false 29', $batch, '[{"id": 8}, {"id": 10}, {"id": 11}]', '{id}' ],
	[ 'accumulate: new', 'applied 10.50', $accumulate, 'account', '42', 'balance', '10.50', 'pay-1' ],
	[ 'accumulate: again', 'duplicate 10.50', $accumulate, 'account', '42', 'balance', '10.50', 'pay-1' ],
	[ 'accumulate: an impostor', 'ID001', $accumulate, 'account', '42', 'balance', '99', 'pay-1' ],
	[ 'accumulate: every argument', 'applied 5.50',
		$withdraw, 'account', '42', 'balance', '-5', 'pay-2', '0', 'return', 'shop', '1 day', '1 s', 'false' ],
	[ 'accumulate: a refusal', 'rejected 5.50',
		$withdraw, 'account', '42', 'balance', '-7', 'pay-3', '0', 'return', 'shop', '1 day', '1 s', 'false' ],
	[ 'accumulate: a key of two columns', 'applied 1', $seat, 'seat', $first_seat, 'used', '1', 'book-1', '1', 'true' ],
	[ 'accumulate: the same key again', 'duplicate 1', $seat, 'seat', $first_seat, 'used', '1', 'book-1', '1', 'true' ],
	[ 'accumulate: no number', '22P02', $accumulate, 'account', '42', 'balance', 'ten', 'pay-4' ],
	[ 'accumulate: a blank operation id', 'ID002', $accumulate, 'account', '42', 'balance', '1', ' ' ],
	[ 'lookup', 'done 5.50', $lookup, 'shop', 'pay-2' ],
	[ 'ignore_duplicates: new', '2 rows', $insert, 'a', 'number:1', 'b', 'number:2' ],
	[ 'ignore_duplicates: one of two again', '1 rows', $insert, 'b', 'number:2', 'c', 'number:3' ],
	[ 'ignore_duplicates: both again', '0 rows', $insert, 'a', 'number:1', 'c', 'number:3' ],
);

# Last, since the same statement was prepared with parameters of other types before.
my @native_numbers = (
	[ "accumulate: the library's own numbers", 'applied 7.50',
		"$accumulate -- numbers", 'account', 'number:42', 'balance', 'number:2', 'pay-5' ],
	[ "accumulate: the same numbers again", 'duplicate 7.50',
		"$accumulate -- numbers", 'account', 'number:42', 'balance', 'number:2', 'pay-5' ],
);

sub quietly
{
	my @command = @_;

	return eval { run(\@command, '<', \undef, '>&', \my $output) };
}

# Where npm put node-postgres, or undef.
sub install_node_postgres
{
	my $directory = File::Temp->newdir;

	return unless quietly('node', '--version') && quietly('npm', '--version');
	return unless quietly('npm', 'install', '--prefix', "$directory", '--no-audit', '--no-fund', 'pg@8');
	return $directory;
}

# try_client($node, $name, environment, $command): every step through one library, in a database of its own.
sub try_client
{
	my ($node, $name, $environment, @command) = @_;
	my @all = (@steps, @native_numbers);
	my $input = join('', map { my (undef, undef, @fields) = @$_; join("\t", map { s/\s*\n\s*/ /gr } @fields) . "\n" } @all);
	my ($output, $errors) = ('', '');

	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->safe_psql($name, $schema);
	local %ENV = (%ENV, %$environment, PGHOST => '127.0.0.1', PGPORT => $node->port, PGDATABASE => $name,
		PGUSER => $node->safe_psql('postgres', 'SELECT current_user'), PYTHONUTF8 => 1);
	ok(run(\@command, '<', \$input, '>', \$output, '2>', \$errors), "$name answers") or diag($errors);

	my @answers = split(/\n/, $output);
	is(shift @answers, $_->[1], "$name: $_->[0]") foreach @all;
}

my $node = start_node('main', conf => "listen_addresses = '127.0.0.1'\n");

SKIP:
{
	skip('psycopg 3 is not there', 1) unless defined $python;
	try_client($node, 'psycopg', {}, $python, "$clients/psycopg_3.py");
}
SKIP:
{
	my $modules = install_node_postgres();

	skip('node-postgres cannot be installed', 1) unless defined $modules;
	try_client($node, 'node_postgres', { NODE_PATH => "$modules/node_modules" }, 'node', "$clients/node_postgres.js");
}
SKIP:
{
	skip('JDBC is not there', 1) unless -e $jdbc_driver && quietly('javac', '-version');
	try_client($node, 'jdbc', {}, 'java', '-Dfile.encoding=UTF-8', '-Dstdout.encoding=UTF-8', '-cp', $jdbc_driver, "$clients/Jdbc.java");
}

$node->stop;
done_testing();
