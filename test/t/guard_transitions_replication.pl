# A guarded table on both ends of a subscription.
#
# Rows come as the publisher stored them, and it has judged them: apply workers do not fire ordinary triggers. Enabled
# ALWAYS, the trigger judges on the subscriber, too: what was changed there by hand then stops the subscription.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

my $publisher = start_node('publisher', streaming => 'logical');
# an apply worker that fails is started again at once
my $subscriber = start_node('subscriber', conf => 'wal_retrieve_retry_interval = 100ms');

$_->safe_psql('postgres', <<~'END') for $publisher, $subscriber;
	CREATE TABLE orders (id integer PRIMARY KEY, status text NOT NULL);
	CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', '
		[*] --> WAIT_PAY
		WAIT_PAY --> PAID
		PAID --> SHIPPED');
	END
$publisher->safe_psql('postgres', <<~'END');
	INSERT INTO orders VALUES (1, 'WAIT_PAY'), (2, 'WAIT_PAY');
	UPDATE orders SET status = 'PAID' WHERE id = 2;
	CREATE PUBLICATION shop FOR TABLE orders;
	END

my $rows = q{SELECT string_agg(id || ' ' || status, ', ' ORDER BY id) FROM orders};
my $from = offset_of_log($subscriber);

# ---------- ordinary: what the publisher stored is taken as it is, the first copy too ----------

$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION shop CONNECTION '@{[ $publisher->connstr ]} dbname=postgres' PUBLICATION shop");
$subscriber->wait_for_subscription_sync($publisher, 'shop');
is($subscriber->safe_psql('postgres', $rows), '1 WAIT_PAY, 2 PAID', 'rows are copied in whatever state they are');
$publisher->safe_psql('postgres', q{UPDATE orders SET status = 'PAID' WHERE id = 1});
$publisher->wait_for_catchup('shop');
is($subscriber->safe_psql('postgres', $rows), '1 PAID, 2 PAID', 'and go on as they did at the publisher');
is(($subscriber->psql('postgres', q{UPDATE orders SET status = 'WAIT_PAY' WHERE id = 1}))[0], 3, 'whoever writes there is judged');

# ---------- ALWAYS: what is applied is judged there, too ----------

$subscriber->safe_psql('postgres', 'ALTER TABLE orders ENABLE ALWAYS TRIGGER zz_guard');
$publisher->safe_psql('postgres', q{UPDATE orders SET status = 'SHIPPED' WHERE id = 1; INSERT INTO orders VALUES (3, 'WAIT_PAY')});
$publisher->wait_for_catchup('shop');
is($subscriber->safe_psql('postgres', $rows), '1 SHIPPED, 2 PAID, 3 WAIT_PAY', 'what is allowed there is applied');

my $before = offset_of_log($subscriber);
$subscriber->safe_psql('postgres', q{ALTER TABLE orders DISABLE TRIGGER zz_guard; UPDATE orders SET status = 'SHIPPED' WHERE id = 3;
	ALTER TABLE orders ENABLE ALWAYS TRIGGER zz_guard});
$publisher->safe_psql('postgres', q{UPDATE orders SET status = 'PAID' WHERE id = 3});
$subscriber->wait_for_log(qr/ERROR:  ID004: /, $before);
is($subscriber->safe_psql('postgres', $rows), '1 SHIPPED, 2 PAID, 3 SHIPPED', 'what is not stops the subscription');

$subscriber->safe_psql('postgres', q{ALTER TABLE orders ENABLE TRIGGER zz_guard});
$publisher->wait_for_catchup('shop');
is($subscriber->safe_psql('postgres', $rows), '1 SHIPPED, 2 PAID, 3 PAID', 'until the trigger is an ordinary one again');

my $codes = error_codes($subscriber, $from);
is_deeply([ keys %$codes ], ['ID004'], 'no other error');

done_testing();
