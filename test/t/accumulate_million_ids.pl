# One transaction may use a million operation ids, and one session may live for ever.
#
# A lock for each id would fill the lock table, which all sessions share; an allocation for each would fill the backend's
# memory. So a transaction of 1,000,000 calls at default settings is held against its own state after the first tenth. And
# a session whose tables change under it, or come and go, must not collect plans of what is no more.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

my $IDS = 1_000_000;

my $node = start_node('main', conf => <<~'END');
	# checkpoints would only slow it down
	max_wal_size = 8GB
	autovacuum = off
	END
is($node->safe_psql('postgres', 'SHOW max_locks_per_transaction'), 64, 'the lock table has its default size');

# ---------- a million ids ----------

# As many rows: what a transaction updates twice costs the server itself memory (combo command ids).
add_account_table($node, $IDS);
$node->safe_psql('postgres', <<~'END');
	VACUUM ANALYZE account;
	CREATE TABLE measure (ids integer, what text, n bigint);
	CREATE TABLE answer (outcome text, n bigint);
	CREATE PROCEDURE measure(ids integer) LANGUAGE sql AS $$
		INSERT INTO measure SELECT ids, 'locks', count(*) FROM pg_locks WHERE pid = pg_backend_pid();
		INSERT INTO measure SELECT ids, 'memory', sum(used_bytes) FROM pg_backend_memory_contexts;
		INSERT INTO measure SELECT ids, 'contexts', count(*) FROM pg_backend_memory_contexts;
		INSERT INTO measure SELECT ids, 'plans', count(*) FROM pg_backend_memory_contexts
			WHERE name IN ('SPI Plan', 'CachedPlanSource', 'CachedPlan');
	$$;
	CREATE PROCEDURE call_all(first integer, last integer) LANGUAGE plpgsql AS $$
	DECLARE
		outcome text;
		applied bigint := 0;
	BEGIN
		FOR i IN first .. last LOOP
			outcome := f.outcome FROM idempotency.accumulate('account', i, 'balance', 1, 'op-' || i, scope => 'test') AS f;
			IF outcome = 'applied' THEN applied := applied + 1; END IF;
		END LOOP;
		INSERT INTO answer VALUES ('applied', applied);
	END $$;
	END

my (undef, undef, $error) = $node->psql('postgres', <<~END, on_error_stop => 1);
	BEGIN;
	CALL call_all(1, $IDS / 100);
	CALL measure(0);
	TRUNCATE measure;
	CALL call_all($IDS / 100 + 1, $IDS / 10);
	CALL measure($IDS / 10);
	CALL call_all($IDS / 10 + 1, $IDS);
	CALL measure($IDS);
	COMMIT;
	END

is($error, '', 'a transaction of a million ids meets no error');
is($node->safe_psql('postgres', 'SELECT sum(n) FROM answer'), $IDS, 'G1 once: a million operations apply in one transaction');
is($node->safe_psql('postgres', 'SELECT count(*), min(balance), max(balance) FROM account'), "$IDS|1|1",
	'G1 once: each to its row');
is($node->safe_psql('postgres', 'SELECT count(*) FROM idempotency.operation_log'), $IDS, 'G2 one transaction: each is logged');

my %measure = map { my ($what, $tenth, $all) = split /\|/; $what => [ $tenth, $all ] } split /\n/,
  $node->safe_psql('postgres', <<~END);
	SELECT what, max(n) FILTER (WHERE ids < $IDS), max(n) FILTER (WHERE ids = $IDS) FROM measure GROUP BY 1
	END
note explain \%measure;
cmp_ok($measure{locks}[1], '<=', 100, 'a million ids need at most 100 entries of the lock table');
cmp_ok($measure{memory}[1], '<', $measure{memory}[0] + 1_000_000, 'memory is flat from the first tenth on');
cmp_ok($measure{contexts}[1], '<', $measure{contexts}[0] + 20, 'so is the number of memory contexts');
cmp_ok($measure{plans}[1], '<=', $measure{plans}[0] + 2, 'so is the number of plans');

# ---------- a long session ----------

# What one session has of plans and of memory after $rounds rounds of a script. Not counted is what the server's own caches
# keep of tables that were dropped: it is the same for plain UPDATEs.
sub kept_after
{
	my ($session, $rounds, $script) = @_;

	for my $round (1 .. $rounds)
	{
		$session->query($script =~ s/ROUND/$round/gr);
	}
	return split /\|/, $session->query(<<~'END');
		SELECT count(*) FILTER (WHERE name IN ('SPI Plan', 'CachedPlanSource', 'CachedPlan', 'idempotency target')),
			sum(used_bytes) FILTER (WHERE name <> 'CacheMemoryContext')
		FROM pg_backend_memory_contexts
		END
}

sub is_flat
{
	my ($name, $prepare, $script) = @_;
	my $session = Idempotency::Session->new($node);

	$session->query($prepare) if $prepare;
	# past the number of tables at which stale ones are looked for
	my ($plans, $memory) = kept_after($session, 400, $script);
	my ($plans_later, $memory_later) = kept_after($session, 2000, $script =~ s/ROUND/later_ROUND/gr);

	note "$name: $plans, later $plans_later plans; $memory, later $memory_later bytes";
	cmp_ok($plans_later, '<=', $plans + 200, "$name: the number of plans is flat over 2,000 rounds");
	cmp_ok($memory_later, '<', $memory + 1_000_000, "$name: memory is flat over 2,000 rounds");
	is($session->query("SELECT count(*) FROM idempotency.operation_log WHERE scope = '$name'"),
		2400, "$name: all calls applied");
	$session->quit;
	return;
}

is_flat('altered', 'CREATE TABLE altered (id integer PRIMARY KEY, balance numeric); INSERT INTO altered VALUES (1, 0)',
	join ' ', split /\n/, <<~'END');
	ALTER TABLE altered ADD CONSTRAINT c CHECK (balance >= 0); ALTER TABLE altered DROP CONSTRAINT c;
	DO $$ BEGIN PERFORM f.outcome FROM idempotency.accumulate('altered', 1, 'balance', 1, 'ROUND', scope => 'altered') AS f; END $$
	END
is_flat('come and go', '', join ' ', split /\n/, <<~'END');
	CREATE TABLE come_ROUND (id integer PRIMARY KEY, balance numeric); INSERT INTO come_ROUND VALUES (1, 0);
	DO $$ BEGIN PERFORM f.outcome FROM idempotency.accumulate('come_ROUND', 1, 'balance', 1, 'ROUND', scope => 'come and go') AS f; END $$;
	DROP TABLE come_ROUND
	END

done_testing();
