/*
 * arguments.c - the arguments that many functions share, read and checked
 *
 * Everything here looks at the argument alone, never at a table, so that it can
 * run before the log is asked: what it refuses could never have succeeded.
 */
#include "postgres.h"

#include "arguments.h"
#include "compat.h"
#include "errors.h"

#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#define MAX_OPERATION_ID_BYTES 512
#define MAX_SCOPE_BYTES 255

/*
 * Raises 22004 where argument n is NULL.
 */
void
idem_arguments_require(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not be NULL", name),
				 errhint("Pass a value for \"%s\".", name)));
}

/*
 * Is there a control character in these bytes?  C0 and DEL in every encoding;
 * C1, U+0080 to U+009F, where its bytes are known, in UTF-8.
 */
static bool
has_control_character(const char *bytes, int length)
{
	bool		utf8 = GetDatabaseEncoding() == PG_UTF8;

	for (int i = 0; i < length; i++)
	{
		unsigned char byte = bytes[i];

		if (byte < 0x20 || byte == 0x7F)
			return true;
		if (utf8 && byte == 0xC2 && i + 1 < length && (unsigned char) bytes[i + 1] < 0xA0)
			return true;
	}
	return false;
}

/* Of ASCII's white space only the blank itself is not a control character. */
static bool
is_blank(const char *bytes, int length)
{
	for (int i = 0; i < length; i++)
	{
		if (bytes[i] != ' ')
			return false;
	}
	return true;
}

/*
 * An identifier is stored and compared as it is, so what would invite mistakes
 * is refused rather than mended.  Lengths are bytes: they bound the index entry.
 */
static void
check_identifier(const text *identifier, const char *what, int max_bytes)
{
	const char *bytes;
	int			length;

	if (identifier == NULL)
		ereport(ERROR,
				(errcode(IDEM_INVALID_OPERATION_ID),
				 errmsg("%s must not be NULL", what),
				 errhint("Pass the same %s with every retry of one business action.", what)));

	bytes = VARDATA_ANY(identifier);
	length = VARSIZE_ANY_EXHDR(identifier);

	if (length == 0)
		ereport(ERROR,
				(errcode(IDEM_INVALID_OPERATION_ID),
				 errmsg("%s must not be empty", what),
				 errhint("Pass 1 to %d bytes.", max_bytes)));
	if (length > max_bytes)
		ereport(ERROR,
				(errcode(IDEM_INVALID_OPERATION_ID),
				 errmsg("%s is too long", what),
				 errdetail("It has %d bytes, the limit is %d.", length, max_bytes),
				 errhint("Pass a digest of it, for example encode(sha256(...), 'hex').")));
	if (has_control_character(bytes, length))
		ereport(ERROR,
				(errcode(IDEM_INVALID_OPERATION_ID),
				 errmsg("%s contains a control character", what),
				 errhint("Remove tabs, line ends and other control characters where it is made.")));
	if (is_blank(bytes, length))
		ereport(ERROR,
				(errcode(IDEM_INVALID_OPERATION_ID),
				 errmsg("%s must not be blank", what),
				 errhint("Pass at least one character other than a blank.")));
}

/*
 * Raises ID002 unless this can name an operation.
 */
void
idem_arguments_check_operation_id(const text *operation_id)
{
	check_identifier(operation_id, "operation id", MAX_OPERATION_ID_BYTES);
}

/*
 * Raises ID002 unless this can be a scope.
 */
void
idem_arguments_check_scope(const text *scope)
{
	check_identifier(scope, "scope", MAX_SCOPE_BYTES);
}

static int
compare_with_zero(const Interval *interval)
{
	Interval	zero = {0};

	return DatumGetInt32(DirectFunctionCall2(interval_cmp, IntervalPGetDatum(interval),
											 IntervalPGetDatum(&zero)));
}

/*
 * Raises 22023 unless the time to live is NULL or longer than nothing.
 */
void
idem_arguments_check_ttl(const Interval *ttl)
{
	if (ttl != NULL && compare_with_zero(ttl) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ttl must be greater than zero"),
				 errhint("Leave it out to remember the operation as long as idempotency.default_ttl says.")));
}

/*
 * Returns the wait in microseconds, IDEM_WAIT_UNLIMITED for NULL.  A month is
 * 30 days here, as it is wherever PostgreSQL compares intervals.
 */
int64
idem_arguments_wait(const Interval *wait)
{
	double		microseconds;

	if (wait == NULL)
		return IDEM_WAIT_UNLIMITED;
	if (compare_with_zero(wait) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("wait must not be negative"),
				 errhint("Pass '0' not to wait at all, or NULL to wait without a limit.")));
	if (IDEM_INTERVAL_IS_INFINITE(wait))
		return IDEM_WAIT_UNLIMITED;

	microseconds = ((double) wait->month * DAYS_PER_MONTH + wait->day) * (double) USECS_PER_DAY + wait->time;
	/* past a century it makes no difference, and adding it to the clock must not overflow */
	return (int64) Min(microseconds, 100.0 * DAYS_PER_YEAR * USECS_PER_DAY);
}

/*
 * Returns what `on_reject` asks for.  Raises 22004 for NULL, 22023 for anything
 * else.
 */
OnReject
idem_arguments_on_reject(const text *on_reject)
{
	char	   *word = on_reject ? text_to_cstring(on_reject) : NULL;

	if (word && strcmp(word, "raise") == 0)
		return IDEM_REJECT_RAISE;
	if (word && strcmp(word, "return") == 0)
		return IDEM_REJECT_RETURN;
	if (word && strcmp(word, "record") == 0)
		return IDEM_REJECT_RECORD;

	ereport(ERROR,
			(errcode(word ? ERRCODE_INVALID_PARAMETER_VALUE : ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 word ? errmsg("unknown value for on_reject: \"%s\"", word)
			 : errmsg("argument \"%s\" must not be NULL", "on_reject"),
			 errhint("Use 'raise', 'return' or 'record'.")));
	return IDEM_REJECT_RAISE;	/* not reached; for compilers that do not know */
}
