# Test.pm - what the TAP tests share: a server with the extension, load, and counts of what the server refused
#
# Nothing here waits for a time: it waits for a condition, and gives up after PG_TEST_TIMEOUT_DEFAULT seconds.
package Idempotency::Test;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use POSIX ();
use Test::More;
use Time::HiRes qw(usleep);

use Idempotency::Session;

our @EXPORT = qw(
  start_node restart_after_kill add_account_table accumulate_call
  sum_of_balances error_codes offset_of_log wait_until
  run_pgbench run_streams add_batch_prototype
);

# Where a test cannot run, it is skipped before PostgreSQL's own modules look for what is not there.
BEGIN
{
	my ($version) = (qx(pg_config --version 2>/dev/null) || '') =~ /(\d+)/;

	plan(skip_all => 'initdb does not run as root') if $> == 0;
	plan(skip_all => 'PostgreSQL::Test::Cluster came with PostgreSQL 15') if !defined $version || $version < 15;
	plan(skip_all => 'this PostgreSQL was installed without PostgreSQL::Test::Cluster')
	  unless eval { require PostgreSQL::Test::Cluster; require PostgreSQL::Test::Utils; 1 };
}

# ---------- servers ----------

# start_node($name, conf => $lines, streaming => 1 or 'logical'): a server with the extension in database postgres.
sub start_node
{
	my ($name, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(allows_streaming => $options{streaming} // 0);
	# verbose: error codes are read from the server's log
	$node->append_conf('postgresql.conf', <<~'END');
		log_statement = none
		log_error_verbosity = verbose
		max_connections = 100
		shared_buffers = 64MB
		max_prepared_transactions = 50
		restart_after_crash = on
		END
	$node->append_conf('postgresql.conf', $options{conf}) if defined $options{conf};
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');
	return $node;
}

# After a kill -9 of the postmaster its children take a moment to notice; until then no new one can start.
sub restart_after_kill
{
	my ($node) = @_;

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return if $node->start(fail_ok => 1);
		# it may have taken the old pid file for that of a server that runs
		$node->stop('fast', fail_ok => 1);
		usleep(100_000);
	}
	BAIL_OUT('the server did not come up again after kill -9');
}

sub wait_until
{
	my ($node, $condition) = @_;

	$node->poll_query_until('postgres', "SELECT $condition") or BAIL_OUT("waited in vain until $condition");
	return;
}

# ---------- tables and calls ----------

# The usual target: account(id, balance), with ids 1 to $rows.
sub add_account_table
{
	my ($node, $rows) = @_;

	$node->safe_psql('postgres', <<~END);
		CREATE TABLE account (id integer PRIMARY KEY, balance numeric NOT NULL DEFAULT 0);
		INSERT INTO account SELECT generate_series(1, $rows);
		END
	return;
}

# accumulate_call($account, $delta, $id [, 'more => arguments']): the call, for FROM. The arguments are SQL.
sub accumulate_call
{
	my ($account, $delta, $id, $more) = @_;

	return "idempotency.accumulate('account', $account, 'balance', $delta, $id, scope => 'test'"
	  . (defined $more ? ", $more)" : ')');
}

# add_batch_prototype($node): batch_prototype(keys, deltas, operation_ids), which does what accumulate() does for all of
# them at once, by the log's protocol for batches: look, lock the rows in the order of their keys, look again by a newer
# snapshot (READ COMMITTED gives each statement its own), update once, log. Returns the number of those that took effect.
sub add_batch_prototype
{
	my ($node) = @_;

	$node->safe_psql('postgres', <<~'END');
		CREATE TYPE item AS (key integer, delta numeric, operation_id text);

		-- what is not logged yet, in the order of (key, id); of an id that stands there twice only the first
		CREATE FUNCTION not_logged(items item[]) RETURNS item[] LANGUAGE sql VOLATILE AS $$
			SELECT coalesce(array_agg((f.key, f.delta, f.operation_id)::item ORDER BY f.key, f.operation_id), '{}')
			FROM (SELECT DISTINCT ON (operation_id) i.*
				  FROM unnest(items) WITH ORDINALITY AS i (key, delta, operation_id, n)
				  ORDER BY operation_id, n) AS f
			WHERE NOT EXISTS (SELECT FROM idempotency.operation_log AS l
							  WHERE l.scope = 'test' AND l.operation_id = f.operation_id)
		$$;

		CREATE FUNCTION batch_prototype(keys integer[], deltas numeric[], operation_ids text[]) RETURNS bigint
		LANGUAGE plpgsql AS $$
		DECLARE
			items item[];
			applied bigint;
		BEGIN
			SELECT array_agg((k, d, o)::item) INTO items FROM unnest(keys, deltas, operation_ids) AS i (k, d, o);
			items := not_logged(items);
			PERFORM FROM account
			WHERE id IN (SELECT key FROM unnest(items)) ORDER BY id FOR NO KEY UPDATE;
			items := not_logged(items);

			WITH changed AS (
				UPDATE account AS a SET balance = a.balance + s.delta
				FROM (SELECT key, sum(delta) AS delta FROM unnest(items) GROUP BY key) AS s
				WHERE a.id = s.key
				RETURNING a.id, a.balance - s.delta AS before)
			INSERT INTO idempotency.operation_log (scope, operation_id, state, created_at, completed_at, request_digest,
				target, target_key, column_name, delta, value)
			SELECT 'test', i.operation_id, 'done', clock_timestamp(), clock_timestamp(),
				idempotency.request_digest(jsonb_build_object('column_name', 'balance', 'delta', i.delta,
					'key', jsonb_build_object('id', i.key), 'maximum', NULL, 'minimum', NULL)),
				'account', jsonb_build_object('id', i.key), 'balance', i.delta,
				c.before + sum(i.delta) OVER (PARTITION BY i.key ORDER BY i.operation_id)
			FROM unnest(items) AS i JOIN changed AS c ON c.id = i.key;
			GET DIAGNOSTICS applied = ROW_COUNT;
			RETURN applied;
		END $$;
		END
	return;
}

sub sum_of_balances
{
	my ($node) = @_;

	return $node->safe_psql('postgres', 'SELECT trim_scale(sum(balance)) FROM account');
}

# ---------- what the server refused ----------

sub offset_of_log
{
	my ($node) = @_;

	return -s $node->logfile;
}

# How often each SQLSTATE was reported since an offset of the server's log: {code => count}.
sub error_codes
{
	my ($node, $offset) = @_;
	my %count;

	open my $log, '<', $node->logfile or die "could not read the server's log: $!";
	seek $log, $offset, 0;
	while (my $line = <$log>)
	{
		$count{$1}++ if $line =~ /(?:ERROR|FATAL|PANIC):  ([0-9A-Z]{5}): /;
	}
	close $log;
	return \%count;
}

# ---------- load ----------

sub write_file
{
	my ($name, $text) = @_;

	open my $file, '>', $name or die "could not write $name: $!";
	print $file $text;
	close $file or die "could not write $name: $!";
	return;
}

# run_pgbench($node, scripts => {name => text}, clients => n, transactions => n for each, options => [...]): all
# scripts with the same weight, or that after the @ of their name. In a script :i starts as 0; a script that counts with
# it does so in its last line, since a retry begins with the first. Returns what pgbench printed.
sub run_pgbench
{
	my ($node, %options) = @_;
	my @command = (
		'pgbench', '--no-vacuum', '--jobs=2', '--failures-detailed', '--define=i=0',
		"--client=$options{clients}", "--transactions=$options{transactions}", @{ $options{options} // [] });
	my $out;

	for my $name (sort keys %{ $options{scripts} })
	{
		my ($base, $weight) = split /@/, $name;
		my $file = $node->basedir . "/$base.pgbench";

		write_file($file, $options{scripts}{$name});
		push @command, '--file', defined $weight ? "$file\@$weight" : $file;
	}

	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	IPC::Run::run(\@command, '>&', \$out);
	note $out;
	return $out;
}

# One client of run_streams(): sends until everything is answered, or nobody is left to hear it.
sub stream
{
	my ($node, $statements, $file) = @_;
	my $parent = getppid;
	my @answers;

	while (@answers < @$statements && getppid == $parent)
	{
		my $out = '';

		# from a file: a pipe would break with the connection
		write_file("$file.sql", join "\n", @$statements[ scalar(@answers) .. $#$statements ]);
		IPC::Run::run(
			[
				$node->installed_command('psql'), '-XAtq', '-v', 'ON_ERROR_STOP=1',
				'-d', $node->connstr('postgres'), '-f', "$file.sql"
			],
			'>', \$out, '2>', '/dev/null');
		push @answers, split /\n/, $out;
	}
	write_file($file, join('', map { "$_\n" } @answers));
	return;
}

# run_streams($node, $streams, $meanwhile): each element of @$streams is a list of statements, one to a line, that one
# client sends in this order. Each gives one row and is sent until it is answered: a client that lost its connection,
# or met an error, goes on with the first that it has no answer to. Meanwhile $meanwhile->() is called, once. Returns
# the lists of answers, in the order of the statements.
sub run_streams
{
	my ($node, $streams, $meanwhile) = @_;
	my @clients;

	for my $number (0 .. $#$streams)
	{
		my $file = $node->basedir . "/stream.$number";
		my $pid;

		$pid = fork // die "could not fork: $!";
		if ($pid == 0)
		{
			# without the END blocks, which would stop the servers
			eval { stream($node, $streams->[$number], $file) };
			warn $@ if $@;
			POSIX::_exit($@ ? 1 : 0);
		}
		push @clients, { pid => $pid, file => $file };
	}

	$meanwhile->() if $meanwhile;
	for my $client (@clients)
	{
		waitpid $client->{pid}, 0;
		BAIL_OUT('a client of a stream failed') if $? != 0;
	}
	return [ map { [ split /\n/, PostgreSQL::Test::Utils::slurp_file($_->{file}) ] } @clients ];
}

1;
