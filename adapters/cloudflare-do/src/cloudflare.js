// What is one call from WebAssembly here would be a dozen there, and those take longer than the decision.

/** The field of an answer. One that is longer than a field should be is the body. */
const ANSWER = "tollgate-answer";
const FIELD_LENGTH_MAX = 4096;

/**
 * Asks an object: a promise of the status and its answer, or of nothing where the deadline has passed. Throws at once
 * where nothing can be asked. Of a question in the URL and an answer in a field nothing has to be streamed.
 */
export function ask(namespace, name, locationHint, question, deadlineMs) {
  const object = namespace.getByName(name, locationHint === undefined ? undefined : { locationHint });
  // The host is nobody's: the object looks at the question only.
  const asked = object.fetch("https://tollgate.invalid/?" + question);
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, deadlineMs);
    const settle = (how) => (what) => {
      clearTimeout(timer);
      how(what);
    };
    const failed = settle(reject);
    asked.then((response) => {
      const answered = settle((text) => resolve(response.status + " " + text));
      const answer = response.headers.get(ANSWER);
      answer === null ? response.text().then(answered, failed) : answered(answer);
    }, failed);
  });
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
