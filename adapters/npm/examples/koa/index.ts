import { Tidegate } from "@tidegate/edge/memory";
import Koa from "koa";

const tidegate = new Tidegate({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

// `identify` would read its fields.
const request = new Request("http://localhost");

const app = new Koa();
app.use(async (ctx, next) => {
  if (ctx.path === "/") return next();
  const { headers, http } = await tidegate.check(request, { peer: ctx.ip });
  ctx.set(headers);
  if (!http) return next();
  [ctx.status, ctx.body] = [http.status, http.body];
});
app.use((ctx) => {
  ctx.body = ctx.path === "/" ? "home" : "hello";
});

app.listen(Number(process.env.PORT), process.env.HOST ?? "0.0.0.0");
