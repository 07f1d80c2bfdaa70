/*
 * hold.h - getting hold of a target's row, with a wait that bounds the twin alone
 */
#ifndef IDEM_HOLD_H
#define IDEM_HOLD_H

#include "postgres.h"

#include "operation_log.h"
#include "target.h"

typedef enum HoldResult
{
	IDEM_HOLD_ROW,				/* the row is ours */
	IDEM_HOLD_NO_ROW,			/* there is none */
	IDEM_HOLD_NOT_YET,			/* someone has ended; try again */
	IDEM_HOLD_NOBODY,			/* the row is there and nobody has it; try again */
	IDEM_HOLD_GAVE_UP			/* a twin is in flight and the wait is over */
} HoldResult;

typedef struct Hold
{
	const Operation *operation;
	const TargetRow *row;
	const TargetColumn *column;
	int64		wait;			/* for a twin, in microseconds, or IDEM_WAIT_UNLIMITED */
	bool		nowait;			/* for anybody else who has the row: do not wait */
	TimestampTz wait_until;		/* 0 until a twin in flight was seen */
} Hold;

extern HoldResult idem_hold_row(Hold *hold, Datum *value);

#endif							/* IDEM_HOLD_H */
