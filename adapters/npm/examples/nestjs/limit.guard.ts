import { type CanActivate, type ExecutionContext, HttpException, Injectable } from "@nestjs/common";
import { Tidegate } from "@tidegate/edge/memory";
import type { Request as Req, Response as Res } from "express";

const tidegate = new Tidegate({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

// `identify` would read its fields.
const request = new Request("http://localhost");

@Injectable()
export class LimitGuard implements CanActivate {
  async canActivate(context: ExecutionContext): Promise<boolean> {
    const [req, res] = [context.switchToHttp().getRequest<Req>(), context.switchToHttp().getResponse<Res>()];
    const { headers, http } = await tidegate.check(request, { peer: req.ip });
    res.set(headers);
    if (http) throw new HttpException(JSON.parse(http.body), http.status);
    return true;
  }
}
