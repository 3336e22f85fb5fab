import { type ErrorKind, TidegateError } from "../../error.js";
import { kindOfLoss, said } from "../../store.js";

/** Errors of an isolation level or of locks, after which nothing is written and the statement may be repeated. */
const CONFLICTS = ["40001", "40P01"];

/** What other requests can cause: locks, timeouts of statements, and connections that are used up. */
const CONTENDED = ["55P03", "57014", "53300", "53400", "08004"];

/** The same, as `pg` and its pool say it, and PgBouncer, which has one code for this and for a server that is down. */
const CROWDED = /no more connections allowed|query_wait_timeout|timeout exceeded when trying to connect|query read timeout|connection terminated due to connection timeout/i;

/** Passwords in addresses. */
const PASSWORDS = /(\b\w+:\/\/)[^\s@/]*@/g;

export function isConflict(thrown: unknown): boolean {
  return CONFLICTS.includes(codeOf(thrown));
}

/** The error for what a client has thrown. `creates` is the statement that creates the table. */
export function failure(thrown: unknown, creates: string): TidegateError {
  if (thrown instanceof TidegateError) return thrown;
  const code = codeOf(thrown);
  const why = said(thrown).replace(PASSWORDS, "$1…@");
  if (code === "42P01") return new TidegateError("refused", `the table is missing; run createTable(client), or this in a migration; nothing was charged:\n\n${creates};\n`);
  const kind = kindOf(code, why);
  const charged = kind === "refused" ? "nothing was charged" : "the request may have been charged";
  return new TidegateError(kind, `${kind === "refused" ? "the server has refused" : "no answer"}; ${charged} (${why}${code && `, ${code}`})`);
}

function kindOf(code: string, why: string): ErrorKind {
  if (CONFLICTS.includes(code) || CONTENDED.includes(code) || CROWDED.test(why)) return "contended";
  // Passwords and permissions, a database that is not there, and statements that the server does not take.
  if (/^(28|3D|3F|42|22|23|0A)/.test(code)) return "refused";
  // As `pg` says it of a server without TLS, to which it has sent nothing.
  if (why.includes("does not support SSL connections")) return "refused";
  return kindOfLoss(why);
}

/** The SQLSTATE of an error, if the server has told one. */
export function codeOf(thrown: unknown): string {
  const { code } = Object(thrown) as { code?: unknown };
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) ? code : "";
}
