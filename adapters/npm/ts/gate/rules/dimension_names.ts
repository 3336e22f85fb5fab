/** The dimension of the sender's most trusted identity, which a quota without a dimension counts by, too. */
export const SENDER = "sender";

/** The dimension of the client's address. */
export const IP = "ip";

/** The dimension of a key that all requests share. */
export const GLOBAL = "global";

/** The dimensions whose keys a gate finds itself. */
export const DIMENSIONS: readonly string[] = [SENDER, IP, GLOBAL];
