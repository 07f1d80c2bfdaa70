// Answers the statements of standard input through node-postgres; see test/t/client_libraries.pl.
//
// The server's address is libpq's environment. Every parameter goes out as text with no type, numbers too.

const { readFileSync } = require('node:fs');
const { Client } = require('pg');

function valueOf(parameter) {
  if (parameter.startsWith('number:')) {
    return Number(parameter.slice('number:'.length));
  }
  return parameter.replace(/^string:/, '');
}

function numbered(statement) {
  let n = 0;
  return statement.replaceAll('?', () => `$${++n}`);
}

async function answer(client, statement, parameters) {
  const text = numbered(statement);
  try {
    // A name makes it a prepared statement, and has at most 63 bytes.
    const name = prepared.get(text) ?? `statement ${prepared.size}`;
    prepared.set(text, name);
    const result = await client.query({ name, text, values: parameters.map(valueOf), rowMode: 'array' });
    return result.fields.length === 0 ? `${result.rowCount} rows` : result.rows[0].join(' ');
  } catch (error) {
    return error.code;
  }
}

const prepared = new Map();

async function main() {
  const client = new Client();
  await client.connect();
  for (const line of readFileSync(0, 'utf8').trimEnd().split('\n')) {
    const [statement, ...parameters] = line.split('\t');
    console.log(await answer(client, statement, parameters));
  }
  await client.end();
}

main();
