/*
 * errors.h - the SQLSTATEs of this extension, all of them and nowhere else
 *
 * Class ID is free for extensions: the SQL standard and PostgreSQL use neither
 * its letters nor its numbers.  A code never changes its meaning.
 */
#ifndef IDEM_ERRORS_H
#define IDEM_ERRORS_H

#include "utils/elog.h"

/* the id belongs to a different request */
#define IDEM_OPERATION_MISMATCH		MAKE_SQLSTATE('I', 'D', '0', '0', '1')
/* the id or the scope is NULL, empty, blank, too long or has control characters */
#define IDEM_INVALID_OPERATION_ID	MAKE_SQLSTATE('I', 'D', '0', '0', '2')
/* not in a state to come from, or the diagram has no such arrow */
#define IDEM_ILLEGAL_TRANSITION		MAKE_SQLSTATE('I', 'D', '0', '0', '4')
/* no row with that key */
#define IDEM_TARGET_ROW_MISSING		MAKE_SQLSTATE('I', 'D', '0', '0', '5')
/* below the minimum or above the maximum */
#define IDEM_LIMIT_EXCEEDED			MAKE_SQLSTATE('I', 'D', '0', '0', '6')
/* a trigger kept the row from being stored */
#define IDEM_ROW_SUPPRESSED			MAKE_SQLSTATE('I', 'D', '0', '0', '9')

#endif							/* IDEM_ERRORS_H */
