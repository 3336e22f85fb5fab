export const limit = () => async () => new Response(null, { headers: { "x-middleware-next": "1" } });
