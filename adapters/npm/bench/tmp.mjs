import { Tidegate } from "@tidegate/edge/memory";
import { RateLimiterMemory } from "rate-limiter-flexible";
const LIMIT=1e9; const policy = { name: "bench", quotas: [{ fixedWindow: { limit: LIMIT, windowMs: 60_000 } }] };
const own = new Tidegate({ platform: "direct", failMode: "closed", policy });
const peer = new RateLimiterMemory({ points: LIMIT, duration: 60, keyPrefix: "peer" });
const keys = Array.from({ length: 400 }, (_, nth) => `user:${nth}`);
let nth = 0; const key = () => keys[(nth = (nth + 1) % keys.length)];
const N=200000;
const T={
 async ours(){for(let i=0;i<N;i++){const {allowed,delayMs}=await own.limit(key()); if(!allowed||delayMs) throw 1}},
 async decide(){for(let i=0;i<N;i++){const {allowed,delayMs}=own.decide(key()); if(!allowed||delayMs) throw 1}},
 async peer(){for(let i=0;i<N;i++){if(!((await peer.consume(key(),1)).remainingPoints>0)) throw 1}},
 async loop(){for(let i=0;i<N;i++){if((await Promise.resolve(policy))!==policy) throw 1}},
};
const only=process.argv[2];
const res={};
for(let r=0;r<15;r++)for(const[n,f]of Object.entries(T)){if(only&&n!==only)continue;const t=performance.now();await f();(res[n]??=[]).push((performance.now()-t)*1e6/N)}
for(const n in res){const a=res[n].sort((x,y)=>x-y);console.log(n,a[0].toFixed(0),a[7].toFixed(0),'ns')}
