# A shop's busiest hour: 64 clients pay the same 1,000 orders.
#
# Every payment is sent three times, a tenth of the orders are paid by a second pay id too, and cancellations and refunds
# race. One stored procedure moves the order and the money under one pay id. When all is answered, every order must be in
# a state that the diagram allows and have got there along its arrows, money must have moved exactly once for each
# order that was paid, every retry must have got the answer of its first, and a second payer must have been told that it is
# not the one who paid. Meanwhile connections are cut; then a client sends again what it has no answer to.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use List::Util qw(shuffle sum0 uniq);
use Test::More;
use Time::HiRes qw(usleep);

my $node = start_node('main', conf => "max_connections = 120\nsynchronous_commit = off");

srand(20260101);

my @ways = qw(WAIT_PAY>PAID WAIT_PAY>CANCELLED PAID>REFUNDED);

$node->safe_psql('postgres', <<~'END');
	CREATE TABLE account (id integer PRIMARY KEY, balance numeric NOT NULL);
	CREATE TABLE orders (id integer PRIMARY KEY, account integer NOT NULL REFERENCES account, amount numeric NOT NULL, status text NOT NULL);
	CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', '
		[*] --> WAIT_PAY
		WAIT_PAY --> PAID : pay
		WAIT_PAY --> CANCELLED : cancel
		PAID --> REFUNDED : refund
		CANCELLED --> [*]
		REFUNDED --> [*]');

	-- what really happened to a row, written down by something that knows nothing of the extension
	CREATE TABLE seen (n bigserial, order_id integer, old text, new text);
	CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN INSERT INTO seen (order_id, old, new) VALUES (NEW.id, OLD.status, NEW.status); RETURN NULL; END $$;
	CREATE TRIGGER see AFTER UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION see();

	-- the answer: outcome, previous state, state and time, by which a retry's is held against its first's
	CREATE FUNCTION move(order_id integer, what text, id text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		o orders;
		t record;
		sign integer := CASE what WHEN 'pay' THEN -1 WHEN 'refund' THEN 1 ELSE 0 END;
	BEGIN
		SELECT * INTO t FROM idempotency.fire_once('orders', order_id, what, id, on_reject => 'return', scope => what);
		IF t.outcome = 'applied' AND sign <> 0 THEN
			SELECT * INTO o FROM orders WHERE orders.id = order_id;
			PERFORM idempotency.accumulate('account', o.account, 'balance', sign * o.amount, id, scope => what || ' money');
		END IF;
		RETURN format('%s %s %s %s %s', id, t.outcome, coalesce(t.previous_state, '-'), t.state, extract(epoch FROM t.changed_at));
	END $$;
	END

# Sets the shop up anew: 20 accounts of 100,000 each, and so many orders.
sub open_shop
{
	my ($orders) = @_;

	$node->safe_psql('postgres', <<~END);
		TRUNCATE orders, account, seen, idempotency.operation_log;
		INSERT INTO account SELECT n, 100000 FROM generate_series(1, 20) AS n;
		INSERT INTO orders SELECT n, 1 + n % 20, 1 + n % 97, 'WAIT_PAY' FROM generate_series(1, $orders) AS n;
		END
	return;
}

# Every request three times, in an order of their own for each client.
sub requests
{
	my ($orders, $clients) = @_;
	my @requests;

	for my $order (1 .. $orders)
	{
		push @requests, ("($order, 'pay', 'pay-$order')") x 3;
		push @requests, ("($order, 'pay', 'pay-$order-again')") x 3 if $order % 10 == 0;
		push @requests, ("($order, 'cancel', 'cancel-$order')") x 3 if $order % 3 == 0;
		push @requests, ("($order, 'refund', 'refund-$order')") x 3 if $order % 4 == 0;
	}
	@requests = shuffle @requests;
	# near one another in time, so that they meet: the same orders at once, at each client
	@requests = map { $_->[0] } sort { $a->[1] <=> $b->[1] } map { [ $_, int((/(\d+)/)[0] / 40) + rand 1.2 ] } @requests;

	my @streams = map { [] } 1 .. $clients;
	push @{ $streams[ $_ % $clients ] }, "SELECT move$requests[$_];" for 0 .. $#requests;
	return \@streams;
}

sub check_answers
{
	my ($name, $answers, $killed) = @_;
	my %of;
	my @faults;

	for my $answer (map { @$_ } @$answers)
	{
		my ($id, $outcome, @rest) = split / /, $answer;

		push @{ $of{$id}{$outcome} }, "@rest";
	}
	for my $id (sort keys %of)
	{
		my %outcomes = %{ $of{$id} };
		my $took_effect = @{ $outcomes{applied} // [] } + @{ $outcomes{duplicate} // [] };

		push @faults, "$id: applied twice" if @{ $outcomes{applied} // [] } > 1;
		push @faults, "$id: a duplicate of nothing" if $took_effect && !$outcomes{applied} && !$killed;
		push @faults, "$id: answers differ"
		  if uniq(@{ $outcomes{applied} // [] }, @{ $outcomes{duplicate} // [] }) > 1;
		push @faults, "$id: $_" for grep { !/^(?:applied|duplicate|rejected)$/ } keys %outcomes;
		push @faults, "$id: " . ($took_effect + @{ $outcomes{rejected} // [] }) . ' answers'
		  if $took_effect + @{ $outcomes{rejected} // [] } != 3;
		# a payment can be refused for good only, for nothing leads back to WAIT_PAY
		push @faults, "$id: took effect and was rejected" if $took_effect && $outcomes{rejected} && $id =~ /^pay/;
	}
	is_deeply(\@faults, [], "$name: G1 once, G3 quiet duplicates: each of three gets the answer of the first");

	my @second = grep { /-again$/ } keys %of;
	my $told = 0;
	@faults = ();
	for my $id (@second)
	{
		my $first = $id =~ s/-again$//r;
		my @paid = grep { $of{$_}{applied} || $of{$_}{duplicate} } $first, $id;
		my @others = grep { $_ ne ($paid[0] // '') } $first, $id;

		push @faults, "$id and $first have both paid" if @paid > 1;
		next unless @paid;
		push @faults, "$_ was not told three times" for grep { @{ $of{$_}{rejected} // [] } != 3 } @others;
		push @faults, "$_ was told of another state" for grep { grep { !/^- (?:PAID|REFUNDED)/ } @{ $of{$_}{rejected} } } @others;
		$told++;
	}
	is_deeply(\@faults, [], "$name: every second pay id is told that it is not the payer");
	cmp_ok($told, '>', 0, "$name: $told were");
	return;
}

sub check_shop
{
	my ($name) = @_;

	is( $node->safe_psql('postgres', q{SELECT count(*) FROM orders WHERE status NOT IN ('PAID', 'CANCELLED', 'REFUNDED')}),
		0, "$name: every order ends in a state that the diagram allows");
	my $ways = $node->safe_psql('postgres', q{SELECT DISTINCT old || '>' || new FROM seen ORDER BY 1});
	is($ways, join("\n", sort @ways), "$name: and each arrow of the diagram was walked, and nothing else");
	is( $node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT order_id, old FROM seen GROUP BY 1, 2 HAVING count(*) > 1) AS s}),
		0, "$name: G1 once: no order took the same step twice");
	is( $node->safe_psql('postgres', <<~'END'), '0', "$name: G1 once: money moved exactly once for each order that was paid");
		SELECT count(*) FROM account AS a WHERE balance <> 100000 - (
			SELECT coalesce(sum(amount), 0) FROM orders AS o WHERE o.account = a.id AND o.status = 'PAID')
		END
	is( $node->safe_psql('postgres', <<~'END'), '0', "$name: G2 one transaction: the log has what happened, and nothing else");
		SELECT count(*) FROM
			(SELECT (target_key ->> 'id')::integer AS order_id, from_state, to_state, 1 AS n FROM idempotency.transition_history
			 UNION ALL SELECT order_id, old, new, -1 FROM seen) AS s
		GROUP BY order_id, from_state, to_state HAVING sum(n) <> 0
		UNION ALL SELECT 0 LIMIT 1
		END
	return;
}

# ---------- READ COMMITTED, 64 clients, and connections that are cut ----------

# Cuts up to so many connections that are at a request, of those that $which; returns how many.
sub cut
{
	my ($most, $which) = @_;

	return $node->safe_psql('postgres', <<~END);
		SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
		FROM (SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT move%' AND $which ORDER BY random() LIMIT $most) AS p
		END
}

# Somebody has an account until a crowd waits for it, so that there are requests to be cut in the middle.
open_shop(1000);
my $owner = Idempotency::Session->new($node);
$owner->query('BEGIN');
$owner->query('SELECT FROM account WHERE id = 2 FOR UPDATE');
my $cut = 0;
my $from = offset_of_log($node);
my $answers = run_streams(
	$node,
	requests(1000, 64),
	sub {
		wait_until($node, q{count(*) >= 20 FROM pg_stat_activity WHERE query LIKE 'SELECT move%' AND wait_event_type = 'Lock'});
		$cut += cut(10, q{wait_event_type = 'Lock'});
		$owner->query('COMMIT');
		for (1 .. 5)
		{
			usleep(100_000);
			$cut += cut(3, 'pid <> pg_backend_pid()');
		}
	});
$owner->quit;
cmp_ok($cut, '>=', 5, "READ COMMITTED: $cut connections were cut");
check_answers('READ COMMITTED', $answers, $cut);
check_shop('READ COMMITTED');
my $codes = error_codes($node, $from);
delete $codes->{'57P01'};
is_deeply($codes, {}, 'G6 isolation: READ COMMITTED: no other error');

# ---------- at the other levels, where a client sends again after 40001 ----------

for my $isolation ('repeatable read', 'serializable')
{
	$node->safe_psql('postgres', "ALTER DATABASE postgres SET default_transaction_isolation = '$isolation'");
	open_shop(60);
	$from = offset_of_log($node);
	$answers = run_streams($node, requests(60, 8));
	check_answers($isolation, $answers, 0);
	check_shop($isolation);
	$codes = error_codes($node, $from);
	delete $codes->{'40001'};
	is_deeply($codes, {}, "G6 isolation: $isolation: no error but 40001");
}

done_testing();
