/*
 * ignore_duplicates.h - a trigger that lets an unchanged INSERT skip what is there
 */
#ifndef IDEM_IGNORE_DUPLICATES_H
#define IDEM_IGNORE_DUPLICATES_H

extern void idem_ignore_duplicates_init(void);

#endif							/* IDEM_IGNORE_DUPLICATES_H */
