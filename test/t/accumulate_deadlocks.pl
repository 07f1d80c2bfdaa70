# A deadlock happens only where two plain UPDATEs of the same rows would deadlock too.
#
# A guard that holds anything but the row while it waits makes deadlocks of its own: of redelivery in another grouping, of
# a row locked beforehand, of batches. Each such case is run by 16 clients that meet on the same ids and rows, and the
# server must report no deadlock at all. The control, two rows in opposite order, shows that one would be seen.
# READ COMMITTED, where a conflict is waited for rather than refused.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

my $CLIENTS = 16;
my $TRANSACTIONS = 200;

# Deadlocks are looked for early, so that the test need not wait for them.
my $node = start_node('main', conf => "synchronous_commit = off\ndeadlock_timeout = 50ms");

add_account_table($node, 2);
add_batch_prototype($node);

# ---------- under load ----------

# Half of the clients run one script and half another; what they do in their i-th transaction has the same ids.
# %ids: by the prefix of its id, the account that an operation goes to. In the scripts <x> is the call of x-i.
sub meet
{
	my ($name, $case, $ids, $one, $other) = @_;
	my $offset = offset_of_log($node);
	my $before = sum_of_balances($node);
	my $script = "\\if :client_id % 2 = 0\n$one\\else\n$other\\endif\n\\set i :i + 1\n";

	for my $x (keys %$ids)
	{
		my $call = 'SELECT outcome FROM ' . accumulate_call($ids->{$x}, 1, "'$case $x-:i'") . ';';

		$script =~ s/<$x>/$call/g;
	}
	my $out = run_pgbench(
		$node,
		clients => $CLIENTS,
		transactions => $TRANSACTIONS,
		scripts => { $case => $script });

	my $count = $CLIENTS * $TRANSACTIONS;
	like($out, qr{transactions actually processed: $count/$count\b}, "$name: every transaction came to its end");
	is_deeply(error_codes($node, $offset), {}, "G6 isolation: no deadlock: $name");
	is(sum_of_balances($node) - $before, keys(%$ids) * $TRANSACTIONS, "G1 once: $name");
	return;
}

meet('two operations on one row in a transaction, against the second of them alone',
	'regrouped', { x => 1, y => 1 }, <<~'ONE', <<~'OTHER');
	BEGIN;
	<x>
	<y>
	COMMIT;
	ONE
	<y>
	OTHER

meet('two operations on one row in a transaction, in both orders',
	'both orders', { x => 1, y => 1 }, <<~'ONE', <<~'OTHER');
	BEGIN;
	<x>
	<y>
	COMMIT;
	ONE
	BEGIN;
	<y>
	<x>
	COMMIT;
	OTHER

meet('a caller that has locked the row, against the same operation alone',
	'locked first', { x => 1 }, <<~'ONE', <<~'OTHER');
	BEGIN;
	SELECT balance FROM account WHERE id = 1 FOR UPDATE;
	<x>
	COMMIT;
	ONE
	<x>
	OTHER

meet('a caller that has updated the row, against two operations in a transaction',
	'updated first', { x => 1, y => 1 }, <<~'ONE', <<~'OTHER');
	BEGIN;
	UPDATE account SET balance = balance WHERE id = 1;
	<y>
	<x>
	COMMIT;
	ONE
	BEGIN;
	<x>
	<y>
	COMMIT;
	OTHER

meet('two rows in the order of their keys, against transactions that share the second',
	'key order', { x => 1, y => 1, z => 2 }, <<~'ONE', <<~'OTHER');
	BEGIN;
	<x>
	<z>
	COMMIT;
	ONE
	BEGIN;
	<y>
	<z>
	COMMIT;
	OTHER

meet('a transaction in the order of the keys, against a batch that shares an id',
	'batch', { x => 1, y => 1, z => 2 }, <<~'ONE', <<~'OTHER');
	BEGIN;
	<x>
	<z>
	COMMIT;
	ONE
	SELECT batch_prototype('{2, 1}', '{1, 1}', ARRAY['batch z-:i', 'batch y-:i']);
	OTHER

meet('limited and unlimited waits for the same operations',
	'waits', { x => 1, y => 1 }, <<~'ONE' =~ s/WAIT/accumulate_call(1, 1, "'waits y-:i'", "wait => '10 s'")/er, <<~'OTHER');
	BEGIN;
	<x>
	SELECT outcome FROM WAIT;
	COMMIT;
	ONE
	<y>
	OTHER

# Two ids of one's own on one row: nobody shares an id, everybody the row.
{
	my $offset = offset_of_log($node);
	my $before = sum_of_balances($node);

	run_pgbench(
		$node,
		clients => $CLIENTS,
		transactions => $TRANSACTIONS,
		scripts => {
			own => "BEGIN;\n"
			  . join('', map { 'SELECT outcome FROM ' . accumulate_call(1, 1, "'own $_-:client_id-:i'") . ";\n" } 'x', 'y')
			  . "COMMIT;\n\\set i :i + 1\n"
		});
	is_deeply(error_codes($node, $offset), {}, 'G6 isolation: no deadlock: two ids of its own on one row in each transaction');
	is(sum_of_balances($node) - $before, 2 * $CLIENTS * $TRANSACTIONS, 'G1 once: two ids on one row');
}

# ---------- a savepoint is rolled back while a twin waits ----------

my $owner = Idempotency::Session->new($node);
my $twin = Idempotency::Session->new($node);

# The savepoint that made the call is rolled back: the twin goes on at once, and the owner finds it done.
{
	my $call = 'SELECT outcome FROM ' . accumulate_call(1, 1, "'savepoint'");
	my $offset = offset_of_log($node);
	my $before = sum_of_balances($node);

	$owner->query('BEGIN');
	$owner->query('SAVEPOINT a');
	is($owner->query($call), 'applied', 'the owner applies within a savepoint');
	$twin->send($call);
	$twin->wait_until_blocked;
	$owner->query('ROLLBACK TO a');
	is($twin->receive, 'applied', 'G2 one transaction: its savepoint is rolled back, the twin that waited applies');
	is($owner->query($call), 'duplicate', 'G3 quiet duplicates: the owner calls again and is told so');
	$owner->query('COMMIT');
	is_deeply(error_codes($node, $offset), {}, 'G6 isolation: no deadlock: a savepoint rolled back under a twin that waits');
	is(sum_of_balances($node) - $before, 1, 'G1 once: a savepoint rolled back under a twin that waits');
}

# The savepoint that made the call was released and one around it is rolled back. When the twin notices is the server's
# affair; the owner, which calls again at once, must not come to wait for it while it waits for the owner.
{
	my $offset = offset_of_log($node);
	my $before = sum_of_balances($node);
	my @answers;

	for my $round (1 .. 20)
	{
		my $call = 'SELECT outcome FROM ' . accumulate_call(1, 1, "'outer savepoint $round'");

		$owner->query('BEGIN');
		$owner->query('SAVEPOINT a');
		$owner->query('SAVEPOINT b');
		my $first = $owner->query($call);
		$owner->query('RELEASE b');
		$twin->send($call);
		$twin->wait_until_blocked;
		$owner->query('ROLLBACK TO a');
		my $again = $owner->query($call);
		$owner->query('COMMIT');
		push @answers, join ' ', $first, sort $again, $twin->receive;
	}
	is_deeply(\@answers, [ ('applied applied duplicate') x 20 ],
		'G2 one transaction: an outer savepoint is rolled back under a twin that waits: owner or twin applies, 20 times');
	is_deeply(error_codes($node, $offset), {},
		'G6 isolation: no deadlock: an owner rolls back to an outer savepoint and calls again');
	is(sum_of_balances($node) - $before, 20, 'G1 once: an outer savepoint rolled back under a twin that waits');
}
$owner->quit;
$twin->quit;

# The same under load. Here plain UPDATEs deadlock too: whoever waits for a subtransaction may be woken between its end and
# the moment from which it counts as over, and then waits for the whole transaction with the row in its queue. So the
# measure is what plain UPDATEs do in the same run; keeping hold of the id while waiting would fail one in ten.
sub outer_savepoints
{
	my ($name, $statement) = @_;
	my $offset = offset_of_log($node);

	run_pgbench(
		$node,
		clients => $CLIENTS,
		transactions => $TRANSACTIONS,
		options => ['--max-tries=1000'],
		scripts => { $name => <<~END });
		BEGIN;
		SAVEPOINT a;
		SAVEPOINT b;
		$statement;
		RELEASE b;
		ROLLBACK TO a;
		$statement;
		COMMIT;
		\\set i :i + 1
		END
	return error_codes($node, $offset);
}

{
	my $before = sum_of_balances($node);
	my $codes = outer_savepoints('outer', 'SELECT outcome FROM ' . accumulate_call(1, 1, "'outer-:i'"));
	is(sum_of_balances($node) - $before, $TRANSACTIONS, 'G1 once: outer savepoints rolled back under load');

	my $plain = outer_savepoints('plain', 'UPDATE account SET balance = balance + 1 WHERE id = 1');
	my $count = $CLIENTS * $TRANSACTIONS;
	my $deadlocks = delete $codes->{'40P01'} // 0;

	note "deadlocks in $count transactions: $deadlocks, plain UPDATEs: ", $plain->{'40P01'} // 0;
	cmp_ok($deadlocks, '<=', ($plain->{'40P01'} // 0) + $count / 500,
		'G6 isolation: outer savepoints rolled back under load: no more deadlocks than of plain UPDATEs');
	is_deeply($codes, {}, 'G6 isolation: outer savepoints rolled back under load: no other error');
}

# ---------- the one that is inherent ----------

{
	my $one = Idempotency::Session->new($node);
	my $other = Idempotency::Session->new($node);
	my ($x, $y) = map { 'SELECT outcome FROM ' . accumulate_call($_, 1, "'opposite $_'") } 1, 2;
	my $offset = offset_of_log($node);
	my $before = sum_of_balances($node);

	$_->query('BEGIN') for $one, $other;
	is($one->query($x), 'applied', 'one session has row 1');
	is($other->query($y), 'applied', 'another has row 2');
	$one->send($y);
	$one->wait_until_blocked;
	$other->send($x);
	my @answers = ($one->receive, $other->receive);
	$_->query('COMMIT') for $one, $other;
	is(error_codes($node, $offset)->{'40P01'}, 1, 'G6 isolation: two rows in opposite order do deadlock, and the count sees it');
	like("@answers", qr/^(ERROR:  40P01 applied|applied ERROR:  40P01)$/,
		'G2 one transaction: the one that goes on applies what the other took back');
	is($one->query($x), 'duplicate', 'row 1 was done');
	is($one->query($y), 'duplicate', 'row 2 was done');
	is(sum_of_balances($node) - $before, 2, 'G1 once: two rows in opposite order');
	$_->quit for $one, $other;
}

{
	my $offset = offset_of_log($node);
	my $before = sum_of_balances($node);
	my ($x, $y) = map { 'SELECT outcome FROM ' . accumulate_call($_, 1, "'load $_-:i'") . ';' } 1, 2;

	run_pgbench(
		$node,
		clients => $CLIENTS,
		transactions => 20,
		options => ['--max-tries=1000'],
		scripts => {
			opposite =>
			  "\\if :client_id % 2 = 0\nBEGIN;\n$x\n$y\nCOMMIT;\n\\else\nBEGIN;\n$y\n$x\nCOMMIT;\n\\endif\n\\set i :i + 1\n"
		});
	my $codes = error_codes($node, $offset);
	note 'deadlocks: ', delete $codes->{'40P01'} // 0;
	is_deeply($codes, {}, 'G6 isolation: two rows in opposite order under load: no other error than a deadlock');
	is(sum_of_balances($node) - $before, 2 * 20, 'G1 once: two rows in opposite order under load, the deadlocks retried');
}

done_testing();
