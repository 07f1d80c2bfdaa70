# An operation in another session's prepared transaction is neither done nor undone, and whoever wants it too waits.
#
# PREPARE TRANSACTION leaves the claim, the effect and the log row in the hands of nobody in particular: the twin may be
# waited for over hours and over a restart of the server. It must then be told the truth, or told that the operation is in
# progress, and never act on a guess.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

my $node = start_node('main');

add_account_table($node, 5);
$node->safe_psql('postgres', 'CREATE TABLE note (text text)');

my $twin = Idempotency::Session->new($node);

sub prepare
{
	my ($id, $account) = @_;

	$account //= 1;
	is($node->safe_psql('postgres', 'BEGIN; SELECT outcome FROM ' . accumulate_call($account, 5, "'$id'") . "; PREPARE TRANSACTION '$id'"),
		'applied', "an operation is prepared: $id");
	return;
}

for my $isolation ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	my $exact = $isolation eq 'READ COMMITTED';

	for my $end ('COMMIT', 'ROLLBACK')
	{
		my $id = lc "$end in $isolation";
		my $call = 'SELECT outcome FROM ' . accumulate_call(1, 5, "'$id'");
		my $before = sum_of_balances($node);

		prepare($id);
		is(sum_of_balances($node), $before, "G2 one transaction: $id: nothing is seen of what is only prepared");
		is($node->safe_psql('postgres', "SELECT idempotency.lookup('test', '$id') IS NULL"), 't', "G2 one transaction: $id: nor in the log");

		# while it is prepared
		$twin->query("BEGIN ISOLATION LEVEL $isolation");
		$twin->query("INSERT INTO note VALUES ('$id')");
		is($twin->query('SELECT outcome, value, applied_at FROM ' . accumulate_call(1, 5, "'$id'", "wait => '0'")),
			'in_progress||', "G3 quiet duplicates: $id: with wait 0 the twin is told at once that it is in progress");
		is($twin->query('SELECT outcome FROM ' . accumulate_call(1, 5, "'$id'", "wait => '20 ms'")),
			'in_progress', "G3 quiet duplicates: $id: or after the time that it gives");
		is($twin->query('SELECT outcome FROM ' . accumulate_call(2, 1, "'$id, another'", "wait => '0'")),
			'applied', "G3 quiet duplicates: $id: its transaction goes on unharmed");
		$twin->query('COMMIT');
		is($node->safe_psql('postgres', "SELECT count(*) FROM note WHERE text = '$id'"), 1, "G3 quiet duplicates: $id: and commits");

		# without a limit it waits for the end
		$twin->query("BEGIN ISOLATION LEVEL $isolation");
		$twin->send($call);
		$twin->wait_until_blocked;
		$node->safe_psql('postgres', "$end PREPARED '$id'");
		my $answer = $twin->receive;
		$twin->query('COMMIT');

		if ($end eq 'ROLLBACK')
		{
			is($answer, 'applied', "G2 one transaction: $id: the twin that waited applies");
		}
		elsif ($exact)
		{
			is($answer, 'duplicate', "G3 quiet duplicates: $id: the twin that waited is a duplicate");
		}
		else
		{
			is($answer, 'ERROR:  40001', "G6 isolation: $id: the twin that waited is told to retry");
		}
		is($twin->query($call), 'duplicate', "G1 once: $id: a retry is a duplicate");
		is(sum_of_balances($node) - $before, 5 + 1, "G1 once: $id: the delta is added once");
	}
}

# A wait that is long enough sees the end.
{
	my $id = 'limited';

	for my $end ('COMMIT', 'ROLLBACK')
	{
		prepare("$id $end");
		$twin->send('SELECT outcome FROM ' . accumulate_call(1, 5, "'$id $end'", "wait => '1 hour'"));
		# it asks rather than queues, so that its transaction outlives the wait
		$node->poll_query_until('postgres',
			'SELECT wait_event_type IS NOT NULL AND state = \'active\' FROM pg_stat_activity WHERE pid = ' . $twin->pid);
		$node->safe_psql('postgres', "$end PREPARED '$id $end'");
		is($twin->receive, $end eq 'COMMIT' ? 'duplicate' : 'applied', "G3 quiet duplicates: a wait that is long enough sees the $end");
	}
}

# An impostor waits as a twin does: what is prepared may still go away.
{
	prepare('impostor');
	$twin->send('SELECT outcome FROM ' . accumulate_call(1, 6, "'impostor'"));
	$twin->wait_until_blocked;
	$node->safe_psql('postgres', "COMMIT PREPARED 'impostor'");
	is($twin->receive, 'ERROR:  ID001', 'G4 no impostor: another delta raises ID001 once the prepared operation is committed');

	prepare('impostor on another row');
	$twin->send('SELECT outcome FROM ' . accumulate_call(2, 5, "'impostor on another row'"));
	$twin->wait_until_blocked;
	my $before = $node->safe_psql('postgres', 'SELECT balance FROM account WHERE id = 2');
	$node->safe_psql('postgres', "COMMIT PREPARED 'impostor on another row'");
	is($twin->receive, 'ERROR:  ID001', 'G4 no impostor: another row raises ID001 too');
	is($node->safe_psql('postgres', 'SELECT balance FROM account WHERE id = 2'), $before, 'G4 no impostor: and that row is left alone');
}

# The server is restarted, and killed, while transactions are prepared.
prepare('restart commit', 3);
prepare('restart rollback', 4);
$twin->quit;
$node->restart;
$node->kill9;
restart_after_kill($node);

$twin = Idempotency::Session->new($node);
for my $end ('commit', 'rollback')
{
	my $account = $end eq 'commit' ? 3 : 4;
	my $id = "restart $end";

	is($twin->query('SELECT outcome FROM ' . accumulate_call($account, 5, "'$id'", "wait => '0'")),
		'in_progress', "G12 durable: after a restart the prepared operation is in progress ($end)");
	$twin->send('SELECT outcome FROM ' . accumulate_call($account, 5, "'$id'"));
	$twin->wait_until_blocked;
	$node->safe_psql('postgres', uc($end) . " PREPARED '$id'");
	is($twin->receive, $end eq 'commit' ? 'duplicate' : 'applied', "G12 durable: and its $end decides");
	is($node->safe_psql('postgres', "SELECT balance FROM account WHERE id = $account"), 5, "G1 once: the delta is added once ($end)");
}
$twin->quit;

is($node->safe_psql('postgres', <<~'END'), 't', 'G2 one transaction: in the end the balances are what the log adds up to');
	SELECT sum(balance) = (SELECT sum(delta) FROM idempotency.operation_log) FROM account
	END

done_testing();
