# State diagrams as Mermaid's own parser reads them.
#
# What check_state_diagram() takes, Mermaid must take, and see the same arrows in it; else the picture of a diagram would
# not be what the table is held to. And what state_diagram() writes must be the same diagram again. So both are asked about
# the same texts: some written by hand, and 2,000 thrown together from pieces of the syntax, most of which are wrong.
#
# The picture in the reference is drawn by this test, where there is a Chromium: UPDATE_PICTURES=1 writes it. It has the
# text in it that it was drawn from, and that is what state_diagram() says of the example.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use JSON::PP;
use Test::More;

my $node = start_node('main');
my $npm = $node->basedir . '/npm';
my $json = JSON::PP->new->canonical;
my $picture = "$FindBin::RealBin/../../docs/pictures/orders.svg";

sub quietly
{
	return system("@_ >/dev/null 2>&1") == 0;
}

my $have_mermaid = quietly('node', '--version') && quietly('npm', 'install', '--prefix', $npm, '--no-audit', '--no-fund', 'mermaid@11', 'jsdom@26');

# What Mermaid makes of texts, which are bytes of UTF-8.
sub mermaid
{
	my ($in, $out, $err) = ($json->encode([ map { my $text = $_; utf8::decode($text); $text } @_ ]));

	utf8::encode($in);
	IPC::Run::run([ 'node', "$FindBin::RealBin/../clients/mermaid.mjs", $npm ], '<', \$in, '>', \$out, '2>', \$err)
	  or BAIL_OUT("Mermaid did not answer: $err");
	return @{ JSON::PP->new->utf8->decode($out) };
}

# The arrows, each once, in an order.
sub arrows
{
	my ($diagram) = @_;
	my %seen = map { $json->encode($_) => 1 } @{ $diagram->{arrows} };

	return join "\n", sort keys %seen;
}

# For each text what the server says: {error} or {written => state_diagram(), arrows => those of transitions()}. All of
# them in one session, by one statement each.
sub server
{
	my @texts = @_;
	my $file = $node->basedir . '/texts.json';

	PostgreSQL::Test::Utils::append_to_file($file, '');
	open my $out, '>', $file or die "could not write $file: $!";
	print $out '[' . join(',', map { JSON::PP->new->utf8(0)->allow_nonref->encode($_) } @texts) . ']';
	close $out;
	my $answers = $node->safe_psql('postgres', <<~END);
		SET client_min_messages = error;
		SELECT json_agg(say(text) ORDER BY n) FROM json_array_elements_text(pg_read_file('$file')::json) WITH ORDINALITY AS t (text, n)
		END
	utf8::encode($answers) if utf8::is_utf8($answers);
	return @{ JSON::PP->new->utf8->decode($answers) };
}

$node->safe_psql('postgres', <<~'END');
	CREATE TABLE drawn (id integer PRIMARY KEY, status text);
	CREATE FUNCTION say(diagram text) RETURNS json LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM idempotency.check_state_diagram(diagram) WHERE severity = 'error') THEN
			RETURN json_build_object('error', (SELECT min(message) FROM idempotency.check_state_diagram(diagram) WHERE severity = 'error'));
		END IF;
		EXECUTE format('CREATE OR REPLACE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON drawn FOR EACH ROW
			EXECUTE FUNCTION idempotency.guard_transitions(''status'', %L)', diagram);
		RETURN json_build_object(
			'written', idempotency.state_diagram('drawn'),
			'counted', idempotency.state_diagram('drawn', counts => true),
			'arrows', (SELECT json_agg(json_build_array(coalesce(from_state, '*'), coalesce(to_state, '*'), coalesce(event, '')))
				FROM idempotency.transitions('drawn')));
	END $$;
	END

# ---------- texts ----------

my @by_hand = (
	"[*] --> A\nA --> B : pay\nB --> [*]",
	"[*]-->A\nA-->B:pay:now",
	"[*] --> Z\xc3\xa4\nZ\xc3\xa4 --> \xe6\x94\xaf\xe4\xbb\x98 : \xe4\xbb\x98\xe6\xac\xbe",
	qq{state "waiting: for {payment} -- day 1" as w\n[*] --> w\nw --> A\nA : a description},
	qq{[*] --> w\nw --> A/b.c(d) : x\nstate "late name" as w},
	"%% comment\n# another\n\n[*] --> A %% behind\n\tA --> B : x\r\nB --> A\r",
	"direction LR\nhide empty description\nscale 350 width\naccTitle: t\naccDescr: d\n[*] --> A",
	"classDef bad fill:#f00\n[*] --> A:::bad\nA --> B\nclass B bad\nstyle A fill:#fff",
	"[*] --> A\nnote right of A : A --> C\nnote left of A\n A --> D\nend note\nA --> B",
	"[*] --> states\nstates --> Note2 : note\nNote2 --> classy\nclassy --> hide\nhide --> end\nend --> as\nas --> direction",
	"[*] --> A\nstate B\nC\nA --> A : again\nA --> A : again",
	"[*] --> constructor\nconstructor --> __proto__ : toString");

srand(20260105);
my @pieces = ('[*]', 'A', 'B', 'c1', "\xc3\xbc", 'x.y', 'end', 'note', 'state', 'class', 'default', 'direction', 'LR', '-->', '-->', '-->',
	'-->', '->', '--', ':', ':', ': pay', ': a:b', '::', ':::k', ';', '"A b"', '"', 'as', '{', '}', '%%', '#', ' ', ' ', ' ', "\n", "\n", "\n",
	'left of', '<<choice>>', '-', 'stateDiagram-v2', 'hide', '%', 'style x y', 'class A k', 'scale 3 width', 'accTitle: t', 'note right of A');
my @thrown = map {
	my $lines = 2 + int rand 3;
	my $text = "[*] --> A\n";

	for (1 .. $lines)
	{
		# most of them something like an arrow
		$text .= rand() < 0.5
		  ? join(' ', (qw([*] A B c1 x.y))[ rand 5 ], '-->', (qw([*] A B c1 x.y))[ rand 5 ]) . (rand() < 0.3 ? ' ' . $pieces[ rand @pieces ] : '') . "\n"
		  : join('', map { $pieces[ rand @pieces ] . (rand() < 0.7 ? ' ' : '') } 1 .. 1 + rand 6) . "\n";
	}
	$text;
} 1 .. 2000;
my @texts = (@by_hand, @thrown);
my @ours = server(@texts);

is(scalar(grep { $ours[$_]{error} } 0 .. $#by_hand), 0, 'what was written by hand is taken');
my @taken = grep { !$ours[$_]{error} } 0 .. $#texts;
cmp_ok(scalar @taken, '>', 200, @taken . ' of ' . @texts . ' texts are taken');

SKIP:
{
	skip 'no node or no npm registry', 4 unless $have_mermaid;
	my @raw = mermaid(map { "stateDiagram-v2\n$texts[$_]" =~ s/^stateDiagram-v2\n(stateDiagram-v2)\n/$1\n/r } @taken);
	my @written = mermaid(map { $ours[$_]{written} } @taken);
	my @counted = mermaid(map { $ours[$_]{counted} } @taken);
	my (@refused, @different, @rewritten, @named);

	for my $n (0 .. $#taken)
	{
		my $text = $texts[ $taken[$n] ];
		my $say = $ours[ $taken[$n] ];
		# what stands in the column is the name, not the id
		my %name = map { ($_ => $written[$n]{states}{$_}[0] // $_) } keys %{ $written[$n]{states} // {} };

		push @refused, "$text\n$raw[$n]{error}" if $raw[$n]{error};
		push @rewritten, "$text\n" . ($written[$n]{error} // $counted[$n]{error}) if $written[$n]{error} || $counted[$n]{error};
		next if $raw[$n]{error} || $written[$n]{error} || $counted[$n]{error};
		push @different, $text if arrows($raw[$n]) ne arrows($written[$n]) || arrows($raw[$n]) ne arrows($counted[$n]);
		push @named, $text
		  if arrows({ arrows => [ map { [ $name{ $_->[0] } // $_->[0], $name{ $_->[1] } // $_->[1], $_->[2] ] } @{ $written[$n]{arrows} } ] }) ne arrows($say);
	}
	is_deeply(\@refused, [], 'Mermaid takes each of them, too');
	is_deeply(\@rewritten, [], 'and what state_diagram() writes of each, with and without counts');
	is_deeply(\@different, [], 'it sees the same arrows in what was read and in what was written');
	is_deeply(\@named, [], 'and they are those of transitions()');
}

# ---------- the picture ----------

$node->safe_psql('postgres', <<~'END');
	CREATE TABLE orders (id integer PRIMARY KEY, status text NOT NULL);
	CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', '
	    [*] --> WAIT_PAY
	    WAIT_PAY --> PAID : pay
	    WAIT_PAY --> CANCELLED : cancel
	    PAID --> REFUNDED : refund
	    CANCELLED --> [*]
	    REFUNDED --> [*]');
	INSERT INTO orders SELECT n, 'WAIT_PAY' FROM generate_series(1, 180) AS n;
	SELECT count(*) FROM idempotency.transition_batch('orders', ARRAY(SELECT generate_series(1, 150)), '{WAIT_PAY}', 'PAID');
	SELECT count(*) FROM idempotency.transition_batch('orders', ARRAY(SELECT generate_series(151, 171)), '{WAIT_PAY}', 'CANCELLED');
	SELECT count(*) FROM idempotency.transition_batch('orders', ARRAY(SELECT generate_series(1, 4)), '{PAID}', 'REFUNDED');
	END
my $example = $node->safe_psql('postgres', q{SELECT idempotency.state_diagram('orders', counts => true)});

sub escaped
{
	return $_[0] =~ s/&/&amp;/gr =~ s/</&lt;/gr =~ s/>/&gt;/gr;
}

# Draws a diagram; returns SVG, with the text in it that it was drawn from.
sub draw
{
	my ($text) = @_;
	my $page = $node->basedir . '/page.html';
	my $script = $json->allow_nonref->encode("$text\n    direction LR");
	my $out;

	PostgreSQL::Test::Utils::append_to_file($page, <<~END);
		<!DOCTYPE html><meta charset="utf-8"><div id="out"></div>
		<script src="file://$npm/node_modules/mermaid/dist/mermaid.min.js"></script>
		<script>
		mermaid.initialize({startOnLoad: false, htmlLabels: false, theme: 'neutral', fontFamily: 'sans-serif',
			deterministicIds: true, deterministicIDSeed: 'orders'});
		mermaid.render('orders', $script).then((drawn) => { document.getElementById('out').innerHTML = drawn.svg; });
		</script>
		END
	IPC::Run::run(
		[
			qw(chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
			  --disable-component-update --disable-sync --virtual-time-budget=10000 --dump-dom),
			'--user-data-dir=' . $node->basedir . '/chromium', "file://$page"
		],
		'>', \$out, '2>', '/dev/null', IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	my ($svg) = $out =~ m{(<svg.*</svg>)}s or return;
	return "$svg\n" =~ s{>}{ '><desc>' . escaped($text) . '</desc>' }er;
}

SKIP:
{
	skip 'no Chromium to draw with', 1 unless $have_mermaid && quietly('chromium', '--version');
	my $svg = draw($example);

	like($svg, qr{PAID.*146 rows}s, 'Mermaid draws the example, with its counts');
	if ($ENV{UPDATE_PICTURES})
	{
		open my $file, '>', $picture or die "could not write $picture: $!";
		print $file $svg;
		close $file;
	}
}
ok(index(PostgreSQL::Test::Utils::slurp_file($picture), '<desc>' . escaped($example) . '</desc>') > 0,
	'the picture in the reference is of the example');

done_testing();
