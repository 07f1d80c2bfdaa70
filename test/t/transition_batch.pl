# Batches of the same rows in opposite order, and single calls between them, for 100 rounds.
#
# In each round two batches of 1,000 rows and 100 single calls want to take every row one state further. Rows are locked in
# the order of their keys, so nobody ends in a deadlock, and each row is moved once, by whoever came first.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

my $ROWS = 1000;
my $ROUNDS = 100;
my $node = start_node('main', conf => "synchronous_commit = off\ndeadlock_timeout = 10ms");

$node->safe_psql('postgres', <<~END);
	CREATE TABLE orders (id integer PRIMARY KEY, status text NOT NULL) WITH (fillfactor = 50);
	INSERT INTO orders SELECT n, 's0' FROM generate_series(1, $ROWS) AS n;
	END

my @sessions = map { Idempotency::Session->new($node) } 1 .. 4;
my $from = offset_of_log($node);
my %wrong;

for my $round (1 .. $ROUNDS)
{
	my $states = sprintf q{'{s%d}', 's%d'}, $round - 1, $round;
	my $batch = sub {
		return "SELECT count(*) FILTER (WHERE outcome = 'applied'), count(*) FILTER (WHERE outcome = 'duplicate') "
		  . "FROM idempotency.transition_batch('orders', ARRAY(SELECT n FROM generate_series(1, $ROWS) AS n ORDER BY $_[0]), $states)";
	};
	my $single = "SELECT count(*) FILTER (WHERE outcome = 'applied'), count(*) FILTER (WHERE outcome = 'duplicate') "
	  . "FROM generate_series(10, $ROWS, 10) AS n, LATERAL idempotency.transition('orders', n, $states)";

	$sessions[0]->send($batch->('n'));
	$sessions[1]->send($batch->('n DESC'));
	$sessions[2]->send($batch->("md5(n || 'x$round')"));
	$sessions[3]->send($single);

	my ($applied, $duplicate) = (0, 0);
	for my $session (@sessions)
	{
		my $answer = $session->receive;

		$wrong{$answer}++ unless $answer =~ /^(\d+)\|(\d+)$/;
		$applied += $1 // 0;
		$duplicate += $2 // 0;
	}
	$wrong{"$applied applied, $duplicate duplicate"}++ unless $applied == $ROWS && $duplicate == 2 * $ROWS + $ROWS / 10;
}
$_->quit for @sessions;

is_deeply(\%wrong, {}, "G9 batches: in each of $ROUNDS rounds every row is moved once, and everybody else is told so");
is_deeply(error_codes($node, $from), {}, 'G9 batches: no deadlock, and no other error');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT status, ' ') FROM orders}), "s$ROUNDS", 'all rows are where they should be');

done_testing();
