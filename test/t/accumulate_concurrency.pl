# Many sessions want the same operation at once.
#
# The one thing that users buy: of any number of simultaneous callers of one operation id exactly one applies it, and
# every other one is told so, at each isolation level. All callers are made to wait for the same row before any of them
# may go on, so that they really meet; a run without the second look at the log, under the row's lock, fails here.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

my $node = start_node('main', conf => "max_connections = 250\nsynchronous_commit = off");

add_account_table($node, 50);
$node->safe_psql('postgres', 'CREATE TABLE answer (operation_id text, outcome text)');

# The answers to an id, as 'applied 1, duplicate 31'.
sub answers
{
	my ($id) = @_;

	return $node->safe_psql('postgres', <<~END);
		SELECT string_agg(outcome || ' ' || n, ', ' ORDER BY outcome)
		FROM (SELECT outcome, count(*) AS n FROM answer WHERE operation_id = '$id' GROUP BY outcome) AS a
		END
}

# 32 clients call with one id while $owner holds the row; when all of them wait, $owner does $end.
sub race
{
	my ($isolation, $id, $owner, $end) = @_;
	my $call = accumulate_call(1, 5, "'$id'");
	my $script = $node->basedir . "/$id.pgbench";
	my $offset = offset_of_log($node);
	my $out;

	PostgreSQL::Test::Utils::append_to_file($script, <<~END);
		BEGIN ISOLATION LEVEL $isolation;
		SELECT outcome FROM $call \\gset
		INSERT INTO answer VALUES ('$id', ':outcome');
		COMMIT;
		END

	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	my $clients = IPC::Run::start(
		[qw(pgbench -n -c 32 -j 2 -t 1 --max-tries=1000 -f), $script, 'postgres'], '>&', \$out);

	wait_until($node, "count(*) = 32 FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
	$owner->query($end);
	$clients->finish;

	my %codes = %{ error_codes($node, $offset) };
	delete $codes{40001} if $isolation ne 'READ COMMITTED';
	is_deeply(\%codes, {}, "G6 isolation: $isolation: no error but 40001 where the isolation level has it ($id)");
	return;
}

for my $isolation ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	my $name = lc $isolation =~ s/ /-/r;
	my $owner = Idempotency::Session->new($node);
	my $before = sum_of_balances($node);

	# someone else has the row
	$owner->query('BEGIN');
	$owner->query('SELECT FROM account WHERE id = 1 FOR UPDATE');
	race($isolation, "$name-one", $owner, 'COMMIT');
	is(answers("$name-one"), 'applied 1, duplicate 31', "G1 once: $isolation: 32 callers of one id, one applies");
	is(sum_of_balances($node) - $before, 5, "G1 once: $isolation: its delta is added once");

	# the winner rolls back
	$owner->query('BEGIN');
	is($owner->query('SELECT outcome FROM ' . accumulate_call(1, 5, "'$name-rollback'")),
		'applied', "$isolation: the winner applies");
	race($isolation, "$name-rollback", $owner, 'ROLLBACK');
	is(answers("$name-rollback"), 'applied 1, duplicate 31',
		"G2 one transaction: $isolation: the winner rolls back, one of the 32 who waited applies");
	is(sum_of_balances($node) - $before, 10, "G2 one transaction: $isolation: its delta is added once");

	# the winner commits
	$owner->query('BEGIN');
	$owner->query('SELECT outcome FROM ' . accumulate_call(1, 5, "'$name-commit'"));
	race($isolation, "$name-commit", $owner, 'COMMIT');
	is(answers("$name-commit"), 'duplicate 32',
		"G3 quiet duplicates: $isolation: the winner commits, all 32 who waited are duplicates");
	is(sum_of_balances($node) - $before, 15, "G1 once: $isolation: the winner's delta is added once");
	$owner->quit;
}

# 200 sessions send 100 increments each, and each is sent by two of them. Deltas are whole numbers and fractions.
my $before = sum_of_balances($node);
my $sent = run_pgbench(
	$node,
	clients => 200,
	transactions => 100,
	scripts => {
		twice => <<~'END'
			\set neighbour (:client_id + 1) % 200
			INSERT INTO answer SELECT 'twice', f.outcome FROM idempotency.accumulate('account', 1 + :client_id % 50, 'balance', :i + 0.25, 'c:client_id-:i', scope => 'twice') AS f;
			INSERT INTO answer SELECT 'twice', f.outcome FROM idempotency.accumulate('account', 1 + :neighbour % 50, 'balance', :i + 0.25, 'c:neighbour-:i', scope => 'twice') AS f;
			\set i :i + 1
			END
	});
like($sent, qr{transactions actually processed: 20000/20000}, '200 sessions sent 40,000 requests');
is(answers('twice'), 'applied 20000, duplicate 20000', 'G1 once: 20,000 requests, each sent twice, apply 20,000 times');
# 200 sessions × (0 + … + 99 + 100 × 0.25)
is(sum_of_balances($node) - $before, 200 * (4950 + 25), 'G1 once: the sum is exact');
is($node->safe_psql('postgres', "SELECT count(*), sum(delta) FROM idempotency.operation_log WHERE scope = 'twice'"),
	'20000|995000.00', 'G2 one transaction: the log has what was applied, and nothing else');

done_testing();
