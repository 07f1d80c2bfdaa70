# Random walks: eight sessions write at random under random state diagrams, by every way that there is to write.
#
# 100,000 writes, most of which the diagrams refuse: plain and multi-row UPDATEs, upserts, INSERTs, moves to another
# partition, transition(), its batch and fire(), in READ COMMITTED and REPEATABLE READ. What was stored is written down
# by a trigger that knows nothing of the extension, with a version that each row counts for itself; and a checker that
# has the diagrams from where they were made replays it. It must find no arrow that is not in the diagram, no row that
# began elsewhere than at the beginning, and no gap.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Idempotency::Test;
use Test::More;

my $TABLES = 6;
my $ROWS = 40;
my $SESSIONS = 8;
my $WRITES = 12_500;    # of each session

srand(20260104);
my $node = start_node('main', conf => "synchronous_commit = off\ndeadlock_timeout = 10ms");

# ---------- diagrams ----------

# {states => [names], initial => {name => 1}, arrows => {from => {to => 1}}, text => Mermaid}
sub random_diagram
{
	my ($number) = @_;
	my $states = 3 + int rand 8;
	# some names that need quotes, and some that are not ASCII
	my @names = map { ("s$_", "state $_ of $states", "zustand_\x{c3}\x{bc}$_")[ $_ % 3 ] } 1 .. $states;
	my %id = map { ($names[$_] => $names[$_] =~ / / ? "q$_" : $names[$_]) } 0 .. $#names;
	my %diagram = (states => \@names, initial => {}, arrows => {});
	my @text = ('stateDiagram-v2', map { qq{state "$_" as $id{$_}} } grep { / / } @names);

	for my $name (@names[ 0, grep { rand() < 0.2 } 1 .. $#names ])
	{
		$diagram{initial}{$name} = 1;
		push @text, "[*] --> $id{$name}";
	}
	# from each state to the next at least, so that a walk goes on for ever
	for my $n (0 .. $#names)
	{
		my $from = $names[$n];

		for my $to (grep { $_ eq $names[ ($n + 1) % @names ] || rand() < 0.15 } @names)
		{
			$diagram{arrows}{$from}{$to} = 1;
			push @text, "$id{$from} --> $id{$to} : e" . int rand 4;
		}
	}
	$diagram{text} = join "\n", @text;
	return \%diagram;
}

my %diagrams = map { ("walk_$_" => random_diagram($_)) } 1 .. $TABLES;

# ---------- tables, and a way to write at random ----------

$node->safe_psql('postgres', <<~'END');
	CREATE TABLE seen (walk text, id integer, version integer, old text, new text);
	CREATE FUNCTION count_version() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		NEW.version := CASE WHEN TG_OP = 'UPDATE' THEN OLD.version + 1 ELSE NEW.version END;
		RETURN NEW;
	END $$;
	-- a row that moves to another partition is deleted and inserted: it keeps its version
	CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO seen VALUES (TG_ARGV[0], NEW.id, NEW.version, CASE WHEN TG_OP = 'UPDATE' THEN OLD.state END, NEW.state);
		RETURN NULL;
	END $$;

	-- Writes at random, and returns what became of it. What the diagram refuses is refused, and nothing else.
	CREATE FUNCTION write(walk text, states text[], rows integer) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		id integer := 1 + floor(random() * rows);
		state text := states[1 + floor(random() * cardinality(states))];
		region text := (ARRAY['a', 'b', 'c'])[1 + floor(random() * 3)];
		way integer := floor(random() * 9);
		-- the partitioned one's key has the region in it, so neither is its id unique nor does it name a row
		key jsonb := jsonb_build_object('id', id);
	BEGIN
		CASE way
			WHEN 0 THEN EXECUTE format('UPDATE %I SET state = $1 WHERE id = $2', walk) USING state, id;
			WHEN 1 THEN EXECUTE format('UPDATE %I SET state = $1 WHERE id BETWEEN $2 AND $2 + 2', walk) USING state, id;
			WHEN 2 THEN EXECUTE format('UPDATE %I SET state = $1, region = $3 WHERE id = $2', walk) USING state, id, region;
			WHEN 3 THEN EXECUTE format('UPDATE %I SET region = $2 WHERE id = $1', walk) USING id, region;
			WHEN 4 THEN
				IF walk <> 'walk_1' THEN
					EXECUTE format('INSERT INTO %I (id, state) VALUES ($1, $2) ON CONFLICT DO NOTHING', walk) USING id, state;
				END IF;
			WHEN 5 THEN
				IF walk <> 'walk_1' THEN
					EXECUTE format('INSERT INTO %I (id, state) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET state = EXCLUDED.state', walk)
						USING id, state;
				END IF;
			WHEN 6 THEN
				IF walk <> 'walk_1' THEN
					PERFORM idempotency.transition(walk::regclass, key, states, state, 'state');
				END IF;
			WHEN 7 THEN
				IF walk <> 'walk_1' THEN
					PERFORM idempotency.transition_batch(walk::regclass, ARRAY[id, 1 + (id + 5) % rows], states, state, 'state');
				END IF;
			WHEN 8 THEN
				IF walk <> 'walk_1' THEN
					PERFORM idempotency.fire(walk::regclass, id, 'e' || floor(random() * 4), 'state', on_reject => 'return');
				END IF;
		END CASE;
		RETURN 'written';
	EXCEPTION
		WHEN SQLSTATE 'ID004' THEN RETURN 'refused';
		-- a row that is not there; an event that is not in the diagram, or leads to two states
		WHEN SQLSTATE 'ID005' OR invalid_parameter_value THEN RETURN 'void';
		WHEN serialization_failure OR deadlock_detected THEN RETURN 'again';
	END $$;
	END

for my $walk (sort keys %diagrams)
{
	# the first one is partitioned, and its key has more in it than the id
	my $storage = $walk eq 'walk_1' ? 'PRIMARY KEY (id, region)) PARTITION BY LIST (region)' : 'PRIMARY KEY (id))';
	my $partitions = $walk eq 'walk_1' ? join('', map { "CREATE TABLE $walk\_$_ PARTITION OF $walk FOR VALUES IN ('$_');" } qw(a b c)) : '';
	# one of them judges after the row is stored
	my $when = $walk eq 'walk_2' ? 'AFTER INSERT OR UPDATE OR DELETE' : 'BEFORE INSERT OR UPDATE';
	my ($initial) = sort keys %{ $diagrams{$walk}{initial} };

	$node->safe_psql('postgres', <<~END);
		CREATE TABLE $walk (id integer, state text, region text NOT NULL DEFAULT 'a', version integer NOT NULL DEFAULT 0, $storage;
		$partitions
		CREATE TRIGGER a_version BEFORE UPDATE ON $walk FOR EACH ROW EXECUTE FUNCTION count_version();
		CREATE TRIGGER see AFTER INSERT OR UPDATE ON $walk FOR EACH ROW EXECUTE FUNCTION see('$walk');
		CREATE TRIGGER zz_guard $when ON $walk FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('state', '$diagrams{$walk}{text}');
		INSERT INTO $walk SELECT n, '$initial' FROM generate_series(1, $ROWS / 2) AS n;
		END
}

# ---------- the walk ----------

my @walks = sort keys %diagrams;
my %scripts = map {
	my $walk = $_;
	my $states = join ',', map { "'$_'" } @{ $diagrams{$walk}{states} };
	my $isolation = $walk =~ /[36]/ ? 'REPEATABLE READ' : 'READ COMMITTED';

	($walk => "BEGIN ISOLATION LEVEL $isolation;\nSELECT write('$walk', ARRAY[$states], $ROWS);\nCOMMIT;\n")
} @walks;

my $from = offset_of_log($node);
my $out = run_pgbench(
	$node,
	clients => $SESSIONS,
	transactions => $WRITES,
	scripts => \%scripts);
like($out, qr{transactions actually processed: 100000/100000}, '100,000 writes from eight sessions');
is_deeply(error_codes($node, $from), {}, 'none of them met an error but those that it counts with');

# ---------- the checker ----------

my %rows;
my %steps;
for (split /\n/, $node->safe_psql('postgres', q{SELECT walk, id, version, coalesce(old, '-'), new FROM seen}))
{
	my ($walk, $id, $version, $old, $new) = split /\|/;

	push @{ $rows{"$walk $id"} }, [ $version, $old, $new ];
}

my @faults;
for my $row (sort keys %rows)
{
	my ($walk) = split / /, $row;
	my $diagram = $diagrams{$walk};
	my $state;
	my $next = 0;

	for my $step (sort { $a->[0] <=> $b->[0] } @{ $rows{$row} })
	{
		my ($version, $old, $new) = @$step;

		push @faults, "$row: version $version in place of $next" if $version != $next;
		if (!defined $state)
		{
			push @faults, "$row begins with $new" unless $diagram->{initial}{$new};
		}
		else
		{
			push @faults, "$row: $version comes from $old in place of $state" if $old ne '-' && $old ne $state;
			push @faults, "$row goes from $state to $new" if $state ne $new && !$diagram->{arrows}{$state}{$new};
			$steps{$walk}{"$state>$new"}++ if $state ne $new;
		}
		$state = $new;
		$next = $version + 1;
	}
	my ($id) = $row =~ /(\d+)$/;
	push @faults, "$row is in another state than it came to"
	  if $node->safe_psql('postgres', "SELECT state FROM $walk WHERE id = $id LIMIT 1") ne $state;
}
is_deeply(\@faults, [], 'the checker finds no arrow outside of the diagrams');

for my $walk (@walks)
{
	my $arrows = 0;

	$arrows += grep { $_ } values %$_ for values %{ $diagrams{$walk}{arrows} };
	cmp_ok(scalar keys %{ $steps{$walk} // {} }, '>=', $arrows / 2,
		"$walk: " . keys(%{ $steps{$walk} }) . " of $arrows arrows between " . @{ $diagrams{$walk}{states} } . ' states were walked');
}

done_testing();
