use std::time::Duration;
use tidegate_cloudflare::durable_objects::{Config, DurableObjects, Lease, Leases};
use tidegate_cloudflare::{Error, Millis, Policy, Quota, UnixMillis};
use worker::{Context, Date, Delay, Env, ObjectNamespace};

tidegate_cloudflare::durable_object!(Tidegate);

/// Call it with each response, and keep the limiter in a `static`: the objects are told what was admitted before they were asked.
pub fn after(limiter: &'static Leases<'static, ObjectNamespace>, context: &Context) {
    let now = || UnixMillis::new(Date::now().as_millis());
    context.wait_until(limiter.after(now, Delay::from(Duration::from_millis(100))));
}

pub fn limiter(env: &Env) -> Result<(Leases<'static, ObjectNamespace>, Policy), Error> {
    let lease = Lease { grace: 2, in_background: true, ..Lease::new(50, Millis::from_secs(60)) };
    let limiter = Leases::with_lease(DurableObjects::from_env(env, "TIDEGATE", Config::default())?, lease)?;
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
