# COPY of a million rows, 10 % of them duplicates, into a table with ignore_duplicates and the default lock settings.
#
# A lock for each key until the end of the transaction would not fit the lock table: one is needed only until the row is
# stored. Then overlapping sets from several sessions at once, by each statement that inserts; at the end every key must be
# there once, and the number of rows that the statements said to have inserted must be the number that is there.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

my $node = start_node('main', conf => "synchronous_commit = off\nfsync = off\nmax_wal_size = 4GB");
my $file = $node->basedir . '/events';

$node->safe_psql('postgres', <<~END);
	CREATE TABLE event (id bigint PRIMARY KEY, source integer NOT NULL);
	CREATE TRIGGER zz_ignore_duplicates BEFORE INSERT ON event
		FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('id');
	-- 950,000 keys, 50,000 of them twice; the last row is a new one
	COPY (SELECT abs(n), 1 FROM generate_series(-50000, 949999) AS n) TO '$file.1';
	-- two sets that overlap by 50,000 keys, for sessions at once
	COPY (SELECT n, 2 FROM generate_series(1000000, 1099999) AS n) TO '$file.2';
	COPY (SELECT n, 3 FROM generate_series(1050000, 1149999) AS n) TO '$file.3';
	INSERT INTO event SELECT n * 19, 0 FROM generate_series(0, 49999) AS n;
	END
is($node->safe_psql('postgres', 'SHOW max_locks_per_transaction'), 64, 'the lock table has its default size');

# ---------- a million rows ----------

my $errors_from = offset_of_log($node);
my $session = Idempotency::Session->new($node);
my $key_locks = q{SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'};

$session->query('\set QUIET off');
$session->query('BEGIN');
is($session->query("COPY event FROM '$file.1'"), 'COPY 900000', 'COPY of 1,000,000 rows stores those that are new');
is($session->query($key_locks), 1, 'it holds the lock of one key, the last');
is($session->query("COPY event FROM '$file.1'"), 'COPY 0', 'once more in the same transaction it stores none');
is($session->query($key_locks), 0, 'and holds no lock of a key');
$session->query('COMMIT');
is($session->query('SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE source = 0) FROM event'),
	'950000|950000|50000', 'G1 once: each key is there once, and those that were there before have stayed');

# ---------- several sessions with overlapping sets ----------

# All in the order of their keys: opposite orders can end in a deadlock, with the trigger as without it.
my %statement = (
	2 => "COPY event FROM '$file.2'",
	3 => "COPY event FROM '$file.3'",
	4 => 'INSERT INTO event SELECT n, 4 FROM generate_series(1025000, 1124999) AS n',
	5 => 'INSERT INTO event VALUES ' . join(', ', map { '(' . (1_000_000 + $_ * 150) . ', 5)' } 0 .. 999),
	6 => 'INSERT INTO event SELECT n, 6 FROM generate_series(1000000, 1149999, 3) AS n ON CONFLICT DO NOTHING');
my %session = map { $_ => Idempotency::Session->new($node) } sort keys %statement;

$_->query('\set QUIET off') for values %session;
$session{$_}->send($statement{$_}) for sort keys %statement;
my %said = map { $_ => $session{$_}->receive } sort keys %statement;
for my $source (sort keys %statement)
{
	my $stored = $session->query("SELECT count(*) FROM event WHERE source = $source");

	is($said{$source} =~ s/.* //r, $stored, "what session $source said to have stored is there");
}
is($session->query('SELECT count(*), count(DISTINCT id) FROM event WHERE id >= 1000000'),
	'150000|150000', 'G1 once: each key of the overlapping sets is there once');

# ---------- one row at a time, the same keys from 8 sessions ----------

$session->query('TRUNCATE event');
run_pgbench(
	$node,
	clients => 8,
	transactions => 1500,
	scripts => { insert => "INSERT INTO event VALUES (:i / 2, :client_id);\n\\set i :i + 1\n" });
is($session->query('SELECT count(*), min(id), max(id) FROM event'), '750|0|749', 'G1 once: 8 sessions insert each key once');
is_deeply(error_codes($node, $errors_from), {}, 'nobody has met an error');

$_->quit for $session, values %session;
done_testing();
