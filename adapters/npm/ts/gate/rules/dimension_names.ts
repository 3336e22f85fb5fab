/** The dimension of the sender's most trusted identity, which a quota without a dimension counts by, too. */
export const SENDER = "sender";

/** The dimension of the client's address. */
export const IP = "ip";

/** The dimension of a key that all requests share. */
export const GLOBAL = "global";

/** The dimension of the fingerprint of the client's TLS handshake. */
export const JA4 = "ja4";

/** The dimensions whose keys a gate finds itself. */
export const DIMENSIONS: readonly string[] = [SENDER, IP, JA4, GLOBAL];

/** Joins the names of the dimensions whose keys make one key. No name has it. */
export const PART_MARK = "+";
