//! Outbound Redis, as in Spin. Each `open` makes a new connection to a server that the manifest allows. The guest
//! receives a server's error as formatted by the crate `redis` 0.32.

use redis::aio::MultiplexedConnection;
use redis::{Client, FromRedisValue, RedisResult as Answered, Value};
use wasmtime::Result;
use wasmtime::component::Resource;

use self::bindings::fermyon::spin::redis::{self as spin, Error, RedisParameter, RedisResult};
use crate::instance::Instance;
use crate::outbound;

pub(crate) mod bindings {
    wasmtime::component::bindgen!({
        path: "../../../adapters/spin/wit",
        world: "outbound-redis",
        imports: { default: async | trappable },
        with: { "fermyon:spin/redis.connection": super::Connected },
    });
}

/// An open connection.
#[allow(unreachable_pub, reason = "the bindings export it again")]
pub struct Connected(MultiplexedConnection);

impl spin::Host for Instance {}

impl spin::HostConnection for Instance {
    async fn open(&mut self, address: String) -> Result<Result<Resource<Connected>, Error>> {
        if !outbound::is_allowed(&self.outbound, &address) {
            return Ok(Err(Error::InvalidAddress));
        }
        let Ok(client) = Client::open(address) else { return Ok(Err(Error::InvalidAddress)) };
        match client.get_multiplexed_async_connection().await {
            Ok(connection) => Ok(Ok(self.table.push(Connected(connection))?)),
            Err(error) => Ok(Err(Error::Other(error.to_string()))),
        }
    }

    async fn execute(
        &mut self,
        connected: Resource<Connected>,
        command: String,
        arguments: Vec<RedisParameter>,
    ) -> Result<Result<Vec<RedisResult>, Error>> {
        let Connected(connection) = self.table.get_mut(&connected)?;
        let mut command = redis::cmd(&command);
        for argument in arguments {
            match argument {
                RedisParameter::Int64(number) => command.arg(number),
                RedisParameter::Binary(bytes) => command.arg(bytes),
            };
        }
        let results = command.query_async::<Results>(connection).await;
        Ok(results.map(|results| results.0).map_err(|error| Error::Other(error.to_string())))
    }

    async fn drop(&mut self, connected: Resource<Connected>) -> Result<()> {
        self.table.delete(connected)?;
        Ok(())
    }
}

/// An answer, flattened.
struct Results(Vec<RedisResult>);

impl FromRedisValue for Results {
    fn from_redis_value(value: &Value) -> Answered<Self> {
        let mut results = Vec::new();
        append(&mut results, value)?;
        Ok(Self(results))
    }
}

fn append(results: &mut Vec<RedisResult>, value: &Value) -> Answered<()> {
    results.push(match value {
        Value::Array(values) | Value::Set(values) => {
            return values.iter().try_for_each(|value| append(results, value));
        }
        Value::Nil => RedisResult::Nil,
        Value::Int(number) => RedisResult::Int64(*number),
        Value::BulkString(bytes) => RedisResult::Binary(bytes.clone()),
        Value::SimpleString(text) => RedisResult::Status(text.clone()),
        Value::Okay => RedisResult::Status("OK".into()),
        other => {
            let detail = format!("{other:?} is not supported");
            return Err((redis::ErrorKind::TypeError, "Could not convert Redis response", detail).into());
        }
    });
    Ok(())
}
