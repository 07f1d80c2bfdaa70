# Everything at once, at every isolation level, with sessions being killed: nothing twice, nothing lost, nothing unexplained.
#
# Groups of clients walk the same operation ids over a few hot rows, each in its own way of using transactions: commit,
# rollback, savepoints, two-phase commit, two ids, limited waits. Sessions are terminated all the time; what they had in
# hand is tried by the others. Every transaction that was told `applied` writes down so in the same transaction, and at
# the end balances, log and those notes must tell the same. The READ COMMITTED clients must not have seen a single 40001:
# that is what fails first when the second look at the log, under the row's lock, is missing, and only the log's unique
# index is left to catch it.
#
# A second part does the same with ids that expire within 30 ms and are purged meanwhile: an id may then apply again, but
# no two of its lifetimes may overlap.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use POSIX ();
use Test::More;
use Time::HiRes qw(usleep);

my $node = start_node('main', conf => "synchronous_commit = off\ndeadlock_timeout = 20ms\nmax_prepared_transactions = 100");

add_account_table($node, 6);
$node->safe_psql('postgres', <<~'END');
	CREATE TABLE effect (operation_id text, account integer, applied_at timestamptz);
	CREATE INDEX ON effect (operation_id);
	END

# ---------- ways of using transactions ----------

# In <name> the call of an operation stands, followed by the note that it applied. In <prepare> stands PREPARE TRANSACTION.
my %ways = (
	commit => "BEGIN <level>;\n<x>\nCOMMIT;\n",
	rollback => "BEGIN <level>;\n<x>\nROLLBACK;\n",
	savepoint => "BEGIN <level>;\nSAVEPOINT a;\n<x>\nROLLBACK TO a;\n<x>\nCOMMIT;\n",
	outer_savepoint =>
	  "BEGIN <level>;\nSAVEPOINT a;\nSAVEPOINT b;\n<x>\nRELEASE b;\nROLLBACK TO a;\n<x>\nCOMMIT;\n",
	kept_savepoint => "BEGIN <level>;\nSAVEPOINT a;\n<x>\nRELEASE a;\n<x>\nCOMMIT;\n",
	commit_prepared => "BEGIN <level>;\n<x>\n<prepare>\nCOMMIT PREPARED <gid>;\n",
	rollback_prepared => "BEGIN <level>;\n<x>\n<prepare>\nROLLBACK PREPARED <gid>;\n",
	two_on_one_row => "BEGIN <level>;\n<x>\n<y>\nCOMMIT;\n",
	two_on_two_rows => "BEGIN <level>;\n<x>\n<z>\nCOMMIT;\n",
	two_in_opposite_order => "BEGIN <level>;\n<z>\n<x>\nCOMMIT;\n",
	limited_wait => "BEGIN <level>;\n<x wait>\nCOMMIT;\n",
	no_wait => "BEGIN <level>;\n<x no wait>\nCOMMIT;\n",
);

sub script
{
	my ($way, $level, $account_of, $id_of, $more) = @_;
	my $call = sub {
		my ($name, $wait) = @_;
		my $id = $id_of->($name);
		my $account = $account_of->($name);

		return "INSERT INTO effect SELECT $id, $account, f.applied_at FROM "
		  . accumulate_call($account, 1, $id, join(', ', grep { $_ } $more, $wait) || undef)
		  . " AS f WHERE f.outcome = 'applied';";
	};
	# The session's process id, so that what a killed one left prepared can be told.
	my $gid = q{'p:pid-:n'};
	my $script = $ways{$way};

	$script =~ s/<level>/ISOLATION LEVEL $level/g;
	$script =~ s/<([xyz])>/$call->($1)/ge;
	$script =~ s/<([xyz]) no wait>/$call->($1, "wait => '0'")/ge;
	$script =~ s/<([xyz]) wait>/$call->($1, "wait => '5 ms'")/ge;
	$script =~ s/<prepare>/PREPARE TRANSACTION $gid;/;
	$script =~ s/<gid>/$gid/;
	return "SELECT pg_backend_pid() AS pid \\gset\n\\set n random(1, 1000000000)\n$script\\set i :i + 1\n";
}

# ---------- clients that are killed and come back ----------

# One for each isolation level, forked: runs pgbench with all ways, $rounds times; killed sessions come back in the next.
# The server's log tells them by their application name.
sub start_clients
{
	my ($part, $level, $clients, $rounds, $transactions, $scripts) = @_;
	my $pid = fork // die "could not fork: $!";
	return $pid if $pid > 0;

	my $parent = getppid;
	my ($out, @files);
	for my $way (sort keys %$scripts)
	{
		my $file = $node->basedir . '/' . join('-', $part, $level =~ s/ /_/r, $way) . '.pgbench';
		PostgreSQL::Test::Utils::append_to_file($file, $scripts->{$way});
		push @files, '--file', $file;
	}
	$ENV{PGHOST} = $node->host;
	$ENV{PGPORT} = $node->port;
	$ENV{PGAPPNAME} = 'stress ' . lc $level;
	for my $round (0 .. $rounds - 1)
	{
		last if getppid != $parent;
		# clients start where they were, more or less: those of a group walk the same ids at about the same time
		my $start = $round * $transactions;
		IPC::Run::run(
			[
				qw(pgbench -n -j 1 --max-tries=50), "--client=$clients", "--transactions=$transactions",
				"--define=i=$start", @files, 'postgres'
			],
			'>&', \$out);
	}
	POSIX::_exit(0);
}

# Ends a session of one level, and finishes what ended sessions have left prepared, one way or the other.
my $sessions = q{FROM pg_stat_activity WHERE application_name LIKE 'stress %' AND backend_type = 'client backend'};
sub disturb
{
	my ($level) = @_;

	$node->safe_psql('postgres', <<~END);
		SELECT pg_terminate_backend(pid) FROM (
			SELECT pid $sessions AND application_name = 'stress ' || lower('$level') ORDER BY random() LIMIT 1) AS s
		END
	finish_orphans();
	return;
}

sub finish_orphans
{
	my $gids = sub {
		return split /\n/, $node->safe_psql('postgres', "SELECT gid FROM pg_prepared_xacts WHERE $_[0]");
	};
	my %orphan = map { $_ => 1 } $gids->(<<~'END');
		NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = substring(gid FROM '^p(\d+)-')::integer)
		END

	# its session may have finished it and gone while that was read; what is still there now is nobody's
	for my $gid (grep { $orphan{$_} } %orphan ? $gids->('true') : ())
	{
		my $verb = rand() < 0.5 ? 'COMMIT' : 'ROLLBACK';
		$node->safe_psql('postgres', "$verb PREPARED '$gid'");
	}
	return;
}

# Runs clients at all three isolation levels at once until all rounds are done; returns what errors each level met.
sub stress
{
	my ($part, %options) = @_;
	my $offset = offset_of_log($node);
	my @levels = ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');
	my @children;
	my $kills = 0;

	for my $level (@levels)
	{
		my %scripts = map { $_ => script($_, $level, $options{account_of}, $options{id_of}, $options{more}) } keys %ways;
		push @children, start_clients($part, $level, @options{qw(clients rounds transactions)}, \%scripts);
	}
	wait_until($node, "count(DISTINCT application_name) = 3 $sessions");
	my %running = map { $_ => 1 } @children;
	while (%running)
	{
		for my $child (keys %running)
		{
			delete $running{$child} if waitpid($child, POSIX::WNOHANG()) != 0;
		}
		disturb($levels[ $kills++ % 3 ]);
		$options{meanwhile}->() if $options{meanwhile};
	}
	wait_until($node, "count(*) = 0 $sessions");
	finish_orphans();

	my %codes;
	open my $log, '<', $node->logfile or die "could not read the server's log: $!";
	seek $log, $offset, 0;
	while (my $line = <$log>)
	{
		$codes{$1}{$2}++ if $line =~ /\] (?:stress )?(.*?) (?:ERROR|FATAL|PANIC):  ([0-9A-Z]{5}): /;
	}
	close $log;
	note "$part: $kills times a session was to be terminated; errors: ", explain \%codes;
	cmp_ok($codes{$_}{'57P01'} // 0, '>', 0, "$part: sessions were killed: $_")
	  for 'read committed', 'repeatable read', 'serializable';
	delete $codes{$_}{'57P01'} for keys %codes;
	return \%codes;
}

# ---------- once, whatever happens ----------

# Three groups of clients at each level, each with its own ids. An operation's account follows from its id.
my $codes = stress(
	'once',
	clients => 9,
	rounds => 9,
	transactions => 60,
	account_of => sub { { x => '1 + :i % 3', y => '1 + :i % 3', z => '1 + (:i + 1) % 3' }->{ $_[0] } },
	id_of => sub { "'once $_[0]-:i'" });

cmp_ok($codes->{'repeatable read'}{40001} // 0, '>', 0, 'once: transactions of different sessions met');
is_deeply([ grep { $_ ne '40P01' } keys %{ $codes->{'read committed'} } ],
	[], 'G6 isolation: READ COMMITTED meets deadlocks of two rows at most');
is_deeply([ grep { $_ ne '40P01' && $_ ne '40001' } keys %{ $codes->{$_} } ],
	[], "G6 isolation: \U$_\E meets 40001 and deadlocks of two rows at most")
  for 'repeatable read', 'serializable';
is_deeply([ grep { !/^(read committed|repeatable read|serializable)$/ && %{ $codes->{$_} } } keys %$codes ],
	[], 'nobody else met an error');

my $scope = "scope = 'test' AND operation_id LIKE 'once %'";
is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT FROM effect GROUP BY operation_id HAVING count(*) > 1) AS t'),
	0, 'G1 once: no operation applied twice');
is($node->safe_psql('postgres', <<~END), 0, 'G2 one transaction: the log and what was told applied are the same');
	SELECT count(*) FROM (SELECT * FROM idempotency.operation_log WHERE $scope) AS l
	FULL JOIN effect AS e ON e.operation_id = l.operation_id AND e.applied_at = l.completed_at
		AND e.account = (l.target_key ->> 'id')::integer
	WHERE e.operation_id IS NULL OR l.operation_id IS NULL
	END
is($node->safe_psql('postgres', <<~END), 0, 'G2 one transaction: the balance of every account is what its log adds up to');
	SELECT count(*) FROM account AS a WHERE balance <>
		(SELECT coalesce(sum(delta), 0) FROM idempotency.operation_log WHERE $scope AND (target_key ->> 'id')::integer = a.id)
	END
is($node->safe_psql('postgres', <<~END), 0, 'the values that were recorded count up without a gap');
	SELECT count(*) FROM account AS a WHERE a.balance <>
		(SELECT count(DISTINCT value) FROM idempotency.operation_log WHERE $scope AND (target_key ->> 'id')::integer = a.id)
	END
is($node->safe_psql('postgres', 'SELECT count(*) >= 3 * 400 FROM effect'), 't', 'most ids applied in the end');

# ---------- ids that expire and are purged ----------

$node->safe_psql('postgres', 'TRUNCATE effect; UPDATE account SET balance = 0');

my $purged = 0;
$codes = stress(
	'expiry',
	clients => 8,
	rounds => 7,
	transactions => 60,
	account_of => sub { { x => '4 + :i % 3', y => '4 + :i % 3', z => '4 + (:i + 1) % 3' }->{ $_[0] } },
	# few ids, in use again and again: 12 for x and y, and 12 for z
	id_of => sub { "'expiry $_[0]' || :i % 12" },
	more => "ttl => '30 ms'",
	meanwhile => sub {
		$purged += $node->safe_psql('postgres', <<~'END') for 1 .. 3;
			WITH purged AS (
				DELETE FROM idempotency.operation_log WHERE ctid = ANY (ARRAY(
					SELECT ctid FROM idempotency.operation_log
					WHERE expires_at <= clock_timestamp() FOR UPDATE SKIP LOCKED LIMIT 100))
				RETURNING 1)
			SELECT count(*) FROM purged
			END
	});

note "purged: $purged, applied: ", $node->safe_psql('postgres', 'SELECT count(*) FROM effect');
cmp_ok($purged, '>', 0, 'expiry: rows were purged');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM effect'), '>', 200, 'expiry: ids were used again');
is_deeply([ grep { $_ ne '40P01' } keys %{ $codes->{'read committed'} } ],
	[], 'G6 isolation: READ COMMITTED meets deadlocks of two rows at most, also where ids expire');
is_deeply([ grep { $_ ne '40P01' && $_ ne '40001' } keys %{ $codes->{$_} } ],
	[], "G6 isolation: \U$_\E meets 40001 and deadlocks of two rows at most, also where ids expire")
  for 'repeatable read', 'serializable';
is($node->safe_psql('postgres', <<~'END'), 0, 'G7 expiry: no two lifetimes of an id overlap');
	SELECT count(*) FROM (
		SELECT applied_at - lag(applied_at) OVER (PARTITION BY operation_id ORDER BY applied_at) AS since FROM effect) AS e
	WHERE since < '30 ms'
	END
is($node->safe_psql('postgres', 'SELECT sum(balance) = (SELECT count(*) FROM effect) FROM account'),
	't', 'G2 one transaction: the balances are what was told applied');

done_testing();
