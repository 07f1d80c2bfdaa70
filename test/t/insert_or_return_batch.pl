# Two sessions insert the same 10,000 rows in opposite order, 100 times: no deadlock, and both get every row.
#
# 30 % of each batch are duplicates: of earlier batches, and of other items of the same batch. Batches lock their keys in
# the order of the keys, so one session has to wait for the other at the first key that is new to both, and at none later.
# Then four sessions with their own order each, one of them at REPEATABLE READ, and one that calls for single rows.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

my $node = start_node('main', conf => "synchronous_commit = off\nfsync = off");

$node->safe_psql('postgres', <<~'END');
	CREATE TABLE item (id bigserial PRIMARY KEY, k integer UNIQUE, made_by integer NOT NULL);
	CREATE TABLE answer (round integer, session integer, item integer, k integer, inserted boolean, id bigint);

	-- the keys of a round: 7,000 that are new, 2,000 of the round before, 1,000 that are repeated
	CREATE FUNCTION keys_of(round integer) RETURNS SETOF integer LANGUAGE sql IMMUTABLE AS $$
		SELECT round * 7000 + n FROM generate_series(-2000, 6999) AS n
		UNION ALL
		SELECT round * 7000 + 7 * n FROM generate_series(0, 999) AS n
	$$;

	-- one call, in the order that is given: 1 ascending, -1 descending, anything else some other
	CREATE PROCEDURE call_batch(round integer, session integer, direction integer) LANGUAGE sql AS $$
		INSERT INTO answer
		SELECT round, session, f.item, (f.stored).k, f.inserted, (f.stored).id
		FROM idempotency.insert_or_return_batch(NULL::item,
			(SELECT jsonb_agg(jsonb_build_object('k', k, 'made_by', session) ORDER BY place, k)
			 FROM keys_of(round) AS k,
				CAST(CASE WHEN abs(direction) = 1 THEN k * direction ELSE hashint4(k # direction) END AS integer) AS place),
			key => '{k}') AS f
	$$;
	END
$node->safe_psql('postgres', 'INSERT INTO item (k, made_by) SELECT k, 0 FROM generate_series(5000, 6999) AS k');

my $errors_from = offset_of_log($node);
my @sessions = map { Idempotency::Session->new($node) } 1 .. 4;

# ---------- two in opposite order ----------

for my $round (1 .. 100)
{
	# each is sent first half the time
	for my $n ($round % 2 ? (0, 1) : (1, 0))
	{
		$sessions[$n]->send("CALL call_batch($round, $n + 1, " . ($n ? -1 : 1) . ')');
	}
	BAIL_OUT("a batch failed: $_") for grep { $_ ne '' } map { $_->receive } @sessions[ 0, 1 ];
}
is_deeply(error_codes($node, $errors_from), {}, 'G9 batches: 100 rounds of two sessions in opposite order meet no error');

# ---------- four, and single calls ----------

for my $round (101 .. 110)
{
	# in the order of the batches, since the calls of one statement are one transaction's
	my $single = 'SELECT count(f.stored) FROM (SELECT k FROM keys_of(' . $round . ') AS k ORDER BY k LIMIT 50 OFFSET 3000) AS t, '
	  . q{LATERAL idempotency.insert_or_return(NULL::item, jsonb_build_object('k', k, 'made_by', 4)) AS f};

	$sessions[0]->send("CALL call_batch($round, 1, $round)");
	$sessions[1]->send("CALL call_batch($round, 2, -1)");
	$sessions[2]->send("BEGIN ISOLATION LEVEL REPEATABLE READ; CALL call_batch($round, 3, 7); COMMIT");
	$sessions[3]->send($single);
	my @said = map { $_->receive } @sessions;

	BAIL_OUT("round $round: @said[0, 1, 3]") if "@said[0, 1, 3]" ne '  50';
	if ($said[2] ne '')
	{
		# it came later than another: once more, by a new snapshot
		BAIL_OUT("round $round: $said[2]") if $said[2] ne 'ERROR:  40001';
		$sessions[2]->query("CALL call_batch($round, 3, 7)");
	}
}
my $codes = error_codes($node, $errors_from);
delete $codes->{40001};
is_deeply($codes, {}, 'G6 isolation: four sessions at once meet no error but the 40001 of REPEATABLE READ');

# ---------- what they were told ----------

is($node->safe_psql('postgres', 'SELECT count(*) FROM answer'), 2_300_000, 'each item has its answer');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT k) FROM item'), '772000|772000', 'G1 once: each key has one row');
is($node->safe_psql('postgres', <<~'END'), 0, 'G9 batches: answers come in the order of the input');
	SELECT count(*) FROM (
		SELECT k, lag(k) OVER (PARTITION BY round, session ORDER BY item) AS before, session FROM answer WHERE round <= 100) AS a
	WHERE CASE session WHEN 1 THEN k < before ELSE k > before END
	END
is($node->safe_psql('postgres', <<~'END'), 0, 'G9 batches: they are numbered from 1');
	SELECT count(*) FROM (SELECT min(item), max(item), count(DISTINCT item) FROM answer GROUP BY round, session) AS a (f, l, n)
	WHERE (f, l, n) <> (1, 10000, 10000)
	END
is($node->safe_psql('postgres', <<~'END'), 0, 'G3 quiet duplicates: everybody was told the row that is stored');
	SELECT count(*) FROM answer AS a LEFT JOIN item AS i ON i.k = a.k WHERE i.id IS DISTINCT FROM a.id
	END
is($node->safe_psql('postgres', <<~'END'), 0, 'G1 once: one was told to have inserted it, and it was');
	SELECT count(*) FROM item AS i
	LEFT JOIN (SELECT k, count(*) AS n, min(session) AS session FROM answer WHERE inserted GROUP BY k) AS a ON a.k = i.k
	WHERE (a.n, a.session) IS DISTINCT FROM (1, made_by) AND made_by BETWEEN 1 AND 3
		OR made_by IN (0, 4) AND a.n IS NOT NULL
	END
is($node->safe_psql('postgres', <<~'END'), 0, 'G9 batches: of items of one key the first in the input is the one that inserts');
	SELECT count(*) FROM answer AS a JOIN answer AS b ON b.round = a.round AND b.session = a.session AND b.k = a.k AND b.item < a.item
	WHERE a.inserted AND a.k % 7 = 0
	END
note 'rows that each of the two was first to insert: ',
  $node->safe_psql('postgres', 'SELECT made_by, count(*) FROM item WHERE k < 101 * 7000 GROUP BY 1 ORDER BY 1');

$_->quit for @sessions;
done_testing();
