# A batch of 100,000 operations fits the log's protocol: a prototype of it, in SQL.
#
# The batch interface comes later, but what a log row is, and what excludes what, is settled now. So a batch made of plain
# SQL that holds to the protocol must exclude single calls of the same ids, and other batches in any input order, without
# deadlocks and without filling the lock table; and accumulate() must take what it logged for its own.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

my $ITEMS = 100_000;
my $ACCOUNTS = 1000;

my $node = start_node('main', conf => "max_wal_size = 4GB\nsynchronous_commit = off\ndeadlock_timeout = 50ms");

my $offset = offset_of_log($node);

add_account_table($node, $ACCOUNTS);
add_batch_prototype($node);

# Operation n goes to account 1 + n % 1000; every hundredth stands in the batch twice.
my $account_of = "1 + n % $ACCOUNTS";
my $delta_of = 'n % 9 + 0.25';
my $batch = <<~END;
	SELECT batch_prototype(array_agg($account_of ORDER BY n DIRECTION), array_agg($delta_of ORDER BY n DIRECTION),
		array_agg('op-' || n ORDER BY n DIRECTION))
	FROM (SELECT n FROM generate_series(1, $ITEMS) AS n UNION ALL SELECT generate_series(100, $ITEMS, 100)) AS o
	END

# ---------- two batches in opposite order, and singles ----------

my $ascending = Idempotency::Session->new($node);
my $descending = Idempotency::Session->new($node);
my $singles = accumulate_call('1 + :n % ' . $ACCOUNTS, ':n % 9 + 0.25', "'op-:n'");

$node->safe_psql('postgres', 'CREATE TABLE answer (outcome text)');
$_->query('BEGIN') for $ascending, $descending;
# Both batches are under way, the first waiting for a row, when the singles begin.
is($descending->query('SELECT count(*) FROM (SELECT FROM account WHERE id = 1 FOR UPDATE) AS a'), 1, 'a row is held');
$ascending->send($batch =~ s/DIRECTION/ASC/gr);
$ascending->wait_until_blocked;
$descending->send($batch =~ s/DIRECTION/DESC/gr);
my $out;
{
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	my $script = $node->basedir . '/singles.pgbench';
	PostgreSQL::Test::Utils::append_to_file($script,
		"\\set n random(1, $ITEMS)\nINSERT INTO answer SELECT f.outcome FROM $singles AS f;\n");
	my $pgbench = IPC::Run::start(
		[ qw(pgbench -n -c 8 -j 1 -t 1000 --failures-detailed -f), $script, 'postgres' ], '>&', \$out);

	my $applied_descending = $descending->receive;
	my $locks = $descending->query('SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()');
	$descending->query('COMMIT');
	my $applied_ascending = $ascending->receive;
	$ascending->query('COMMIT');
	$pgbench->finish;

	my $applied_singly = $node->safe_psql('postgres', "SELECT count(*) FROM answer WHERE outcome = 'applied'");
	note "applied: $applied_descending, $applied_ascending and $applied_singly singly; $locks locks";
	is($applied_descending + $applied_ascending + $applied_singly,
		$ITEMS, 'G9 batches: two batches in opposite order and singles apply each operation once between them');
	cmp_ok($applied_descending, '>', $ITEMS / 2, 'the batch did most of it');
	cmp_ok($locks, '<=', 100, 'G9 batches: a batch of 100,000 operations needs few locks');
}
like($out, qr{transactions actually processed: 8000/8000}, 'no single call failed');
is_deeply(error_codes($node, $offset), {}, 'G9 batches: no deadlock, no unique violation, no other error');

is($node->safe_psql('postgres', <<~END), 0, 'G1 once: the balance of every account is exact');
	SELECT count(*) FROM account AS a
	WHERE balance IS DISTINCT FROM (SELECT sum($delta_of) FROM generate_series(1, $ITEMS) AS n WHERE $account_of = a.id)
	END
is($node->safe_psql('postgres', 'SELECT count(*) FROM idempotency.operation_log'), $ITEMS,
	'G2 one transaction: the log has each operation once');

# ---------- what a batch logged is a duplicate for everybody ----------

is($node->safe_psql('postgres', $batch =~ s/DIRECTION/ASC/gr), 0, 'G1 once: the batch again applies nothing');
is( $node->safe_psql('postgres', <<~END),
	SELECT f.outcome, count(*), count(*) FILTER (WHERE f.value = l.value AND f.applied_at = l.completed_at)
	FROM generate_series(1, $ITEMS, 10) AS n,
		LATERAL idempotency.accumulate('account', $account_of, 'balance', $delta_of, 'op-' || n, scope => 'test') AS f,
		idempotency.operation_log AS l
	WHERE l.scope = 'test' AND l.operation_id = 'op-' || n
	GROUP BY 1
	END
	'duplicate|10000|10000',
	'G3 quiet duplicates: a single call takes what the batch logged for its own, and returns what it recorded');
is( $node->safe_psql('postgres', <<~'END'),
	SELECT count(*) FROM account AS a
	WHERE balance IS DISTINCT FROM (SELECT max(value) FROM idempotency.operation_log
									WHERE (target_key ->> 'id')::integer = a.id)
	END
	0,
	'the values that were recorded run up to the balance of every account');

done_testing();
