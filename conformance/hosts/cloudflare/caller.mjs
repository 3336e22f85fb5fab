// Calls another Worker many times within one request. This measures decisions without a client and its connections.

export default {
  async fetch(request, env) {
    const { worker, path, calls, inFlight, clients } = await request.json();
    let next = 0;
    const ask = async () => {
      while (next < calls) {
        const headers = { "cf-connecting-ip": clients[next++ % clients.length] };
        const response = await env[worker].fetch(`https://bench.invalid${path}`, { headers });
        const text = await response.text();
        // No client reaches its limit, so any other answer is an error.
        if (response.status !== 200 || text !== "allowed\n") throw new Error(`${path} answered ${response.status} ${text}`);
      }
    };
    await Promise.all(Array.from({ length: inFlight }, ask));
    return new Response("done");
  },
};
