# Session.pm - a psql session that is sent one thing after another, and that may be left waiting in between
package Idempotency::Session;

use strict;
use warnings;

use IPC::Run ();
use Test::More;

# Idempotency::Session->new($node [, $dbname]). Errors are answered as "ERROR:  SQLSTATE".
sub new
{
	my ($class, $node, $dbname) = @_;
	my $self = bless { node => $node, in => '', out => '', sent => 0 }, $class;

	$self->{timeout} = IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
	$self->{run} = IPC::Run::start(
		[ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr($dbname // 'postgres') ],
		'<', \$self->{in}, '>&', \$self->{out}, $self->{timeout});
	$self->query('\set VERBOSITY sqlstate');
	$self->{pid} = $self->query('SELECT pg_backend_pid()');
	return $self;
}

sub pid { return $_[0]->{pid} }

# Sends, and does not wait for the answer.
sub send
{
	my ($self, $sql) = @_;
	my $number = ++$self->{sent};

	$sql .= ';' unless $sql =~ /^\\/;
	$self->{in} .= "$sql\n\\echo answered $number\n";
	$self->{run}->pump_nb;
	return;
}

# The answer to what was sent last.
sub receive
{
	my ($self) = @_;
	my $number = $self->{sent};

	$self->{timeout}->start($PostgreSQL::Test::Utils::timeout_default);
	$self->{run}->pump until $self->{out} =~ s/^answered $number\n//m;
	my $answer = $self->{out};
	$self->{out} = '';
	$answer =~ s/^answered \d+\n//mg;
	chomp $answer;
	$answer =~ s/^psql:[^ ]* //mg;
	return $answer;
}

sub query
{
	my ($self, $sql) = @_;

	$self->send($sql);
	return $self->receive;
}

# Waits until what was sent waits for a lock in the server.
sub wait_until_blocked
{
	my ($self) = @_;

	$self->{node}->poll_query_until('postgres',
		"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $self->{pid}")
	  or BAIL_OUT('a session that should wait for a lock does not');
	return;
}

sub quit
{
	my ($self) = @_;

	$self->{in} .= "\\q\n";
	$self->{run}->finish;
	return;
}

1;
