# A subscriber that has some of the rows already: apply stops at the first, and goes on with ignore_duplicates.
#
# The trigger must be enabled ALWAYS there, for apply workers do not fire others.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

my $publisher = start_node('publisher', streaming => 'logical');
# an apply worker that fails is started again at once
my $subscriber = start_node('subscriber', conf => 'wal_retrieve_retry_interval = 100ms');

$_->safe_psql('postgres', 'CREATE TABLE event (id bigint PRIMARY KEY, source text NOT NULL)') for $publisher, $subscriber;
$publisher->safe_psql('postgres', 'CREATE PUBLICATION events FOR TABLE event');
$subscriber->safe_psql('postgres', <<~END);
	CREATE TRIGGER zz_ignore_duplicates BEFORE INSERT ON event
		FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('id');
	INSERT INTO event SELECT n, 'subscriber' FROM generate_series(1, 10) AS n;
	CREATE SUBSCRIPTION events CONNECTION '@{[ $publisher->connstr ]} dbname=postgres' PUBLICATION events WITH (copy_data = false);
	END

my $sources = q{SELECT string_agg(source || ' ' || n, ', ' ORDER BY source) FROM
	(SELECT source, count(*) AS n FROM event GROUP BY source) AS s};

# ---------- an ordinary trigger is not fired by apply ----------

$publisher->safe_psql('postgres', q{INSERT INTO event SELECT n, 'publisher' FROM generate_series(6, 20) AS n});
$subscriber->wait_for_log(qr/ERROR:  23505: /);
is($subscriber->safe_psql('postgres', $sources), 'subscriber 10', 'apply meets a row that is there, and stops');

# ---------- one that is enabled ALWAYS is ----------

$subscriber->safe_psql('postgres', 'ALTER TABLE event ENABLE ALWAYS TRIGGER zz_ignore_duplicates');
$publisher->wait_for_catchup('events');
is($subscriber->safe_psql('postgres', $sources), 'publisher 10, subscriber 10', 'then it skips the rows that are there, and goes on');

my $errors_from = offset_of_log($subscriber);
$publisher->safe_psql('postgres', <<~END);
	INSERT INTO event VALUES (20, 'once more') ON CONFLICT DO NOTHING;
	BEGIN;
	INSERT INTO event VALUES (21, 'publisher');
	SAVEPOINT a;
	INSERT INTO event VALUES (22, 'rolled back');
	ROLLBACK TO a;
	INSERT INTO event VALUES (22, 'publisher');
	COMMIT;
	COPY (SELECT n, 'publisher' FROM generate_series(23, 100) AS n) TO '@{[ $publisher->basedir ]}/events';
	COPY event FROM '@{[ $publisher->basedir ]}/events';
	END
$publisher->wait_for_catchup('events');
is($subscriber->safe_psql('postgres', $sources), 'publisher 90, subscriber 10', 'what is new is applied');

# A row that the subscriber is just inserting is waited for: if it is rolled back, the publisher's is applied.
my $session = Idempotency::Session->new($subscriber);
my $applying = q{count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'logical replication worker' AND wait_event_type = 'Lock'};
for my $end ('COMMIT', 'ROLLBACK')
{
	my $id = $end eq 'COMMIT' ? 101 : 102;

	$session->query('BEGIN');
	$session->query("INSERT INTO event VALUES ($id, 'subscriber')");
	$publisher->safe_psql('postgres', "INSERT INTO event VALUES ($id, 'publisher')");
	wait_until($subscriber, $applying);
	$session->query($end);
	$publisher->wait_for_catchup('events');
	is( $subscriber->safe_psql('postgres', "SELECT source FROM event WHERE id = $id"),
		$end eq 'COMMIT' ? 'subscriber' : 'publisher',
		"G1 once: apply waits for a twin in flight: $end");
}

# The first copy of a subscription is a COPY.
$subscriber->safe_psql('postgres', <<~END);
	DROP SUBSCRIPTION events;
	DELETE FROM event WHERE id > 50;
	CREATE SUBSCRIPTION events CONNECTION '@{[ $publisher->connstr ]} dbname=postgres' PUBLICATION events;
	END
$subscriber->wait_for_subscription_sync($publisher, 'events');
is($subscriber->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM event'),
	'102|102', 'the first copy of a subscription skips what is there');
my $codes = error_codes($subscriber, $errors_from);
# what DROP SUBSCRIPTION does to the worker
delete $codes->{'57P01'};
is_deeply($codes, {}, 'no error since the trigger is enabled ALWAYS');

$session->quit;
done_testing();
