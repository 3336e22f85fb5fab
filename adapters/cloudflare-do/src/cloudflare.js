// What is one call from WebAssembly here would be a dozen there, and those take longer than the decision.

/** The field of an answer. One that is longer than a field should be is the body. */
const ANSWER = "tollgate-answer";
const FIELD_LENGTH_MAX = 4096;

/**
 * Asks an object: `answered` hears of the call by its number the status and the answer, or nothing where the deadline has
 * passed, and `failed` what was thrown. Throws at once where nothing can be asked. Of a question in the URL and an answer
 * in a field nothing has to be streamed. Both are the same functions for all calls: to make two for each takes longer.
 */
export function ask(namespace, name, locationHint, question, deadlineMs, call, answered, failed) {
  const object = namespace.getByName(name, locationHint === undefined ? undefined : { locationHint });
  // The host is nobody's: the object looks at the question only.
  const asked = object.fetch("https://tollgate.invalid/?" + question);
  const timer = setTimeout(() => answered(call), deadlineMs);
  const refused = (error) => {
    clearTimeout(timer);
    failed(call, error);
  };
  asked.then((response) => {
    const tell = (text) => {
      clearTimeout(timer);
      answered(call, response.status + " " + text);
    };
    const answer = response.headers.get(ANSWER);
    answer === null ? response.text().then(tell, refused) : tell(answer);
  }, refused);
}

/** An object's answer. */
export function reply(status, answer) {
  if (status !== 200 || answer.length > FIELD_LENGTH_MAX) return new Response(answer, { status });
  return new Response(null, { headers: { [ANSWER]: answer } });
}

/** Writes one row. */
export function save(sql, key, value, leased, expiresMs) {
  sql.exec("INSERT OR REPLACE INTO tollgate VALUES (?, ?, ?, ?)", key, value, leased, expiresMs);
}

/** Runs a query to its end: the last row that it answers, if any. */
export function run(sql, query, bindings) {
  return sql.exec(query, ...bindings).raw().toArray().at(-1);
}
