# Indexes come and go under load, and nobody who inserts a row meets an error.
#
# While an index is built, reindexed or dropped concurrently there are two for one key, and either can be the one that
# notices a twin: INSERT ... ON CONFLICT raises a spurious 23505 then, which is what users see of it. 12 clients insert
# and delete 4 keys all the time, by insert_or_return, by its batch, and by plain INSERTs into a table with
# ignore_duplicates, while their indexes are rebuilt 20 times and equal ones are built and dropped.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use POSIX ();
use Test::More;

my $node = start_node('main', conf => "synchronous_commit = off\nautovacuum = off");

# The same key as a column and as an expression; who was told to have inserted a row, and who deleted it, notes its id.
$node->safe_psql('postgres', <<~END) for qw(event ignoring);
	CREATE TABLE $_ (id bigserial PRIMARY KEY, k integer NOT NULL, name text NOT NULL, deleted boolean DEFAULT false);
	CREATE UNIQUE INDEX ${_}_k ON $_ (k);
	CREATE UNIQUE INDEX ${_}_name ON $_ (lower(name)) WHERE NOT deleted;
	END
$node->safe_psql('postgres', <<~'END');
	CREATE TRIGGER zz_ignore_duplicates BEFORE INSERT ON ignoring
		FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('k');
	CREATE TABLE told_inserted (source text, id bigint);
	CREATE TABLE told_there (source text, id bigint);
	CREATE TABLE gone (source text, id bigint);
	END

my $values = q{jsonb_build_object('k', :k, 'name', 'Name ' || :k)};

# A statement that calls, and notes what it was told.
sub noted
{
	my ($call) = @_;

	return <<~END =~ s/\s+/ /gr . "\n";
		WITH called AS MATERIALIZED (SELECT * FROM $call),
			kept AS (INSERT INTO told_inserted SELECT 'event', (stored).id FROM called WHERE inserted)
		INSERT INTO told_there SELECT 'event', (stored).id FROM called WHERE NOT inserted;
		END
}

sub noted_insert
{
	my ($rows) = @_;

	return <<~END =~ s/\s+/ /gr . "\n";
		WITH added AS (INSERT INTO ignoring (k, name) VALUES $rows RETURNING id)
		INSERT INTO told_inserted SELECT 'ignoring', id FROM added;
		END
}

my $row = q{(:k, 'Name ' || :k)};
my %scripts = (
	'by_column@4' => noted("idempotency.insert_or_return(NULL::event, $values, key => '{k}')"),
	'by_index@4' => noted("idempotency.insert_or_return(NULL::event, $values, key => '{event_name}')"),
	'in_block@2' => "BEGIN;\n"
	  . noted("idempotency.insert_or_return(NULL::event, $values, key => '{k}', wait => '10 min')")
	  . "COMMIT;\n",
	'undone@2' =>
	  "BEGIN;\n" . noted("idempotency.insert_or_return(NULL::event, $values, key => '{k}')") . "ROLLBACK;\n",
	'batch@2' => noted(
		'idempotency.insert_or_return_batch(NULL::event, (SELECT jsonb_agg('
		  . $values =~ s/:k/1 + (:k + n) % 4/gr
		  . ") FROM generate_series(0, 3) AS n), key => '{k}')"),
	'plain@4' => noted_insert($row),
	'plain_in_block@2' => "BEGIN;\n" . noted_insert("$row, (5, 'Name 5')") . "COMMIT;\n",
	'plain_undone@2' => "BEGIN;\n" . noted_insert($row) . "ROLLBACK;\n",
	map { ("delete_$_\@2" => <<~END) } qw(event ignoring),
		WITH removed AS (DELETE FROM $_ WHERE k = :k RETURNING id) INSERT INTO gone SELECT '$_', id FROM removed;
		END
);
$scripts{$_} = "\\set k random(1, 4)\n$scripts{$_}" for keys %scripts;

# ---------- whoever changes the indexes ----------

my @changes = (
	'REINDEX INDEX CONCURRENTLY <t>_k',
	'CREATE UNIQUE INDEX CONCURRENTLY <t>_second ON <t> (k)',
	'REINDEX INDEX CONCURRENTLY <t>_name',
	'DROP INDEX CONCURRENTLY <t>_second',
	'REINDEX TABLE CONCURRENTLY <t>',
	# the only one of its key: built anew beside the old one, which goes
	'CREATE UNIQUE INDEX CONCURRENTLY <t>_new ON <t> (k)',
	'DROP INDEX CONCURRENTLY <t>_k',
	'ALTER INDEX <t>_new RENAME TO <t>_k',
);
# Forked: changes the indexes of a table until they have been rebuilt that often, and says by its exit status how it went.
sub start_changing
{
	my ($table, $rebuilds) = @_;
	my $pid = fork // die "could not fork: $!";
	return $pid if $pid > 0;

	my $bad = 0;
	for (my ($n, $rebuilt) = (0, 0); $rebuilt < $rebuilds; $n++)
	{
		my $change = $changes[ $n % @changes ] =~ s/<t>/$table/gr;

		$bad ||= $node->psql('postgres', $change) != 0;
		$rebuilt++ if $change =~ /^REINDEX/;
	}
	POSIX::_exit($bad ? 1 : 0);
}

my $errors_from = offset_of_log($node);
my %changing = map { start_changing($_, 20) => $_ } qw(event ignoring);
my $rounds = 0;
while (%changing)
{
	run_pgbench($node, clients => 12, transactions => 200, scripts => \%scripts);
	$rounds++;
	for my $pid (keys %changing)
	{
		next if waitpid($pid, POSIX::WNOHANG()) == 0;
		is($?, 0, "the indexes of table $changing{$pid} have been rebuilt 20 times, and others built and dropped");
		delete $changing{$pid};
	}
}
note "$rounds rounds of 12 clients with 200 transactions each";

# ---------- what became of it ----------

is_deeply(error_codes($node, $errors_from), {}, 'nobody has met an error');
for my $table (qw(event ignoring))
{
	is( $node->safe_psql('postgres', <<~END), 't|t', "$table: rows were inserted, and deleted, all the time");
		SELECT count(*) > 100, (SELECT count(*) > 100 FROM gone WHERE source = '$table')
		FROM told_inserted WHERE source = '$table'
		END
	is( $node->safe_psql('postgres', <<~END), 0, "G1 once: $table: each row has one that was told to have inserted it");
		SELECT count(*) FILTER (WHERE n <> 1) FROM (
			SELECT (SELECT count(*) FROM told_inserted AS i WHERE i.source = '$table' AND i.id = r.id) AS n
			FROM (SELECT id FROM $table UNION ALL SELECT id FROM gone WHERE source = '$table') AS r) AS t
		END
	is( $node->safe_psql('postgres', <<~END), 0, "G2 one transaction: $table: who was told to have inserted a row has");
		SELECT count(*) FROM told_inserted AS i WHERE i.source = '$table'
			AND NOT EXISTS (SELECT FROM $table WHERE id = i.id)
			AND NOT EXISTS (SELECT FROM gone AS g WHERE g.source = '$table' AND g.id = i.id)
		END
	is($node->safe_psql('postgres', "SET enable_indexscan = off; SELECT count(*) - count(DISTINCT k) FROM $table"),
		0, "G1 once: $table: no key has two rows");
}
is($node->safe_psql('postgres', <<~'END'), 0, 'G3 quiet duplicates: each was answered with a row that somebody had inserted');
	SELECT count(*) FROM told_there AS t WHERE NOT EXISTS (SELECT FROM told_inserted AS i WHERE i.source = t.source AND i.id = t.id)
	END
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM told_there'), '>', 100, 'there were duplicates');

done_testing();
