/** The error of a late call, as a kind and a message. */
export function tooLate(isContended: boolean, store: string, deadlineMs: number, wasSent: boolean): [kind: string, message: string] {
  const within = `within ${deadlineMs} ms; ${wasSent ? "the request may have been charged" : "nothing was charged"}`;
  return isContended ? ["contended", `other requests kept this one from being decided ${within}`] : ["timeout", `${store}: no answer ${within}`];
}
