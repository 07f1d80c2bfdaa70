# Sessions die, a backend is killed, the server is killed: whatever was answered stays, and whatever was not is sent
# again and takes effect once.
#
# Eight clients send overlapping streams of requests and send again whatever they got no answer to. Meanwhile sessions
# are terminated, one backend gets SIGKILL (which makes the server restart), and the whole server is stopped without
# a checkpoint and killed. At the end every sum must be exact. The last part shows that a duplicate's answer outlives
# a crash even where the commit it rests on was made with synchronous_commit = off.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use List::Util qw(shuffle uniq);
use Test::More;
use Time::HiRes qw(usleep);

my $OPERATIONS = 24000;
my $ACCOUNTS = 20;

my $node = start_node('main');

my $offset = offset_of_log($node);

add_account_table($node, $ACCOUNTS);
# SQL that gives an operation's account and delta
my ($account_of, $delta_of) = ("(1 + op % $ACCOUNTS)", '(op % 7 + 0.5)');
my $call = accumulate_call($account_of, $delta_of, "'op-' || op");

# Each operation is sent by two clients at least, in different order; half of them once more, later.
my @streams;
for my $client (0 .. 7)
{
	my @own = grep { $_ % 4 == $client % 4 } 1 .. $OPERATIONS;

	push @own, (shuffle @own)[ 0 .. @own / 2 ];
	push @streams,
	  [ map { "SELECT op, f.outcome FROM (VALUES ($_)) AS o (op), LATERAL $call AS f;" } shuffle @own ];
}

# ---------- crashes under load ----------

sub wait_for_operations
{
	my ($number) = @_;

	wait_until($node, "count(*) >= $number FROM idempotency.operation_log");
	return;
}

sub terminate_some
{
	$node->safe_psql('postgres', <<~'END');
		SELECT count(pg_terminate_backend(pid)) FROM (
			SELECT pid FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 3) AS s
		END
	return;
}

# SIGKILL of one busy backend: the server throws all others out and recovers by itself.
sub kill_backend
{
	my $checkpointer =
	  $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'});
	my $busy = q{FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()};

	wait_until($node, "count(*) > 0 $busy");
	kill 9, $node->safe_psql('postgres', "SELECT pid $busy ORDER BY state = 'active' DESC LIMIT 1");
	wait_until($node, "pid <> $checkpointer FROM pg_stat_activity WHERE backend_type = 'checkpointer'");
	return;
}

my $answers = run_streams(
	$node,
	\@streams,
	sub {
		for my $tenth (1 .. 4)
		{
			wait_for_operations($OPERATIONS * $tenth / 20);
			terminate_some();
		}
		wait_for_operations($OPERATIONS * 0.3);
		kill_backend();
		wait_for_operations($OPERATIONS * 0.45);
		$node->stop('immediate');
		$node->start;
		wait_for_operations($OPERATIONS * 0.6);
		$node->kill9;
		restart_after_kill($node);
		wait_for_operations($OPERATIONS * 0.75);
		$node->kill9;
		restart_after_kill($node);
	});

# ---------- what must be true afterwards ----------

my @answers = map { [ split /\|/ ] } map { @$_ } @$answers;
is(scalar(@answers), scalar(map { @$_ } @streams), 'every request was answered in the end');
is_deeply([ grep { $_ ne 'applied' && $_ ne 'duplicate' } uniq map { $_->[1] } @answers ],
	[], 'every answer is applied or duplicate');

my %applied;
$applied{ $_->[0] }++ for grep { $_->[1] eq 'applied' } @answers;
is_deeply([ grep { $applied{$_} > 1 } keys %applied ],
	[], 'G1 once: no operation was answered "applied" twice');

is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT operation_id) FROM idempotency.operation_log'),
	"$OPERATIONS|$OPERATIONS", 'G12 durable: each operation is in the log, once');
my $sums = <<~END;
	SELECT count(*) FROM account AS a
	WHERE balance IS DISTINCT FROM
		(SELECT sum($delta_of) FROM generate_series(1, $OPERATIONS) AS op WHERE $account_of = a.id)
	END
is($node->safe_psql('postgres', $sums), 0, 'G1 once: the balance of every account is exact');
is($node->safe_psql('postgres', <<~END), 0, 'G2 one transaction: the balance of every account is what its log says');
	SELECT count(*) FROM account AS a WHERE balance IS DISTINCT FROM
		(SELECT sum(delta) FROM idempotency.operation_log WHERE (target_key ->> 'id')::integer = a.id)
	END

is($node->safe_psql('postgres', <<~END), "duplicate|$OPERATIONS", 'G1 once: sent again, all of them are duplicates');
	SELECT f.outcome, count(*) FROM generate_series(1, $OPERATIONS) AS op, LATERAL $call AS f GROUP BY 1
	END
is($node->safe_psql('postgres', $sums), 0, 'G1 once: and nothing has changed by it');

my %codes = %{ error_codes($node, $offset) };
# terminated, not yet up again, started too early after kill -9: nothing that an operation itself could raise
delete @codes{qw(57P01 57P02 57P03 08006 F0001)};
is_deeply(\%codes, {}, 'no error but of the crashes themselves');

# ---------- a duplicate rests on nothing that a crash could take back ----------

# Nobody flushes WAL now but who needs to.
$node->append_conf('postgresql.conf', <<~'END');
	autovacuum = off
	wal_writer_delay = 10s
	checkpoint_timeout = 1h
	END
$node->restart;

# A writer with synchronous_commit = off commits, a reader does something, and the server is killed at once. Returns what
# the reader was told, and how many rows the log has of the operation afterwards.
sub crash_after
{
	my ($id, $read) = @_;
	my $writer = Idempotency::Session->new($node);
	my $reader = Idempotency::Session->new($node);
	my $wal_writer =
	  $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});

	# plans and hint bits first, so that the reader has nothing else to do
	$reader->query($read =~ s/\Q$id\E/warm/r) for 1 .. 2;
	$writer->query('SET synchronous_commit = off');
	kill 'STOP', $wal_writer;
	$writer->query('SELECT outcome FROM ' . accumulate_call(1, 1, "'$id'"));
	my $unflushed = $reader->query('SELECT pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()');
	my $told = $reader->query($read);

	$node->kill9;
	kill 9, $wal_writer;
	restart_after_kill($node);
	return ($unflushed, $told,
		$node->safe_psql('postgres', "SELECT count(*) FROM idempotency.operation_log WHERE operation_id = '$id'"));
}

$node->safe_psql('postgres', 'SELECT outcome FROM ' . accumulate_call(1, 1, "'warm'"));
is_deeply(
	[ crash_after('lost', "SELECT state FROM idempotency.operation_log WHERE operation_id = 'lost'") ],
	[ 't', 'done', 0 ],
	'a plain SELECT sees a commit that the crash then takes back');
is_deeply(
	[ crash_after('kept', 'SELECT outcome FROM ' . accumulate_call(1, 1, "'kept'")) ],
	[ 't', 'duplicate', 1 ],
	'G12 durable: what accumulate() called a duplicate is still there after the crash');
is_deeply(
	[ crash_after('looked up', "SELECT state FROM idempotency.lookup('test', 'looked up')") ],
	[ 't', 'done', 1 ],
	'G12 durable: and so is what lookup() has shown');
is($node->safe_psql('postgres', 'SELECT outcome FROM ' . accumulate_call(1, 1, "'lost'")),
	'applied', 'G1 once: what the server lost counts as not made, and its retry applies');

done_testing();
