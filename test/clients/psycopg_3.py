"""Answers the statements of standard input through psycopg 3; see test/t/client_libraries.pl.

The server's address is libpq's environment. A string goes out with no type, as psycopg sends every str.
"""

import sys

import psycopg


def value_of(parameter):
    if parameter.startswith("number:"):
        return int(parameter.removeprefix("number:"))
    return parameter.removeprefix("string:")


def answer(connection, statement, parameters):
    try:
        cursor = connection.execute(
            statement.replace("?", "%s"), [value_of(p) for p in parameters], prepare=True
        )
    except psycopg.Error as error:
        return error.sqlstate
    if cursor.description is None:
        return f"{cursor.rowcount} rows"
    return " ".join(str(column) for column in cursor.fetchone())


with psycopg.connect(autocommit=True) as connection:
    for line in sys.stdin:
        statement, *parameters = line.rstrip("\n").split("\t")
        print(answer(connection, statement, parameters))
