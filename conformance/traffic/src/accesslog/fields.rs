//! What the fields of a line in JSON mean.

/// What a field of a line may mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The time.
    Time,
    /// The client's address.
    Ip,
    /// The method.
    Method,
    /// The path or the URL.
    Path,
    /// The method, the path and the version, as in HTTP/1.1.
    Request,
    /// The host.
    Host,
    /// The user agent.
    Agent,
    /// The status of the answer.
    Status,
    /// A subject that the application has verified.
    Subject,
    /// The sender's tier.
    Tier,
}

impl Field {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Time,
        Self::Ip,
        Self::Method,
        Self::Path,
        Self::Request,
        Self::Host,
        Self::Agent,
        Self::Status,
        Self::Subject,
        Self::Tier,
    ];

    /// The name in `--field NAME=FIELD`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Ip => "ip",
            Self::Method => "method",
            Self::Path => "path",
            Self::Request => "request",
            Self::Host => "host",
            Self::Agent => "agent",
            Self::Status => "status",
            Self::Subject => "subject",
            Self::Tier => "tier",
        }
    }

    /// The names in the logs of nginx, Caddy, Traefik, Cloudflare and the Elastic Common Schema, the preferred one first. A
    /// subject and a tier count only where a user says so.
    const fn known(self) -> &'static str {
        match self {
            Self::Time => "time_iso8601 msec time timestamp @timestamp ts time_local StartUTC EdgeStartTimestamp",
            Self::Ip => {
                "client_ip request.client_ip request.remote_ip remote_addr ip client.ip ClientIP ClientHost \
                 remote_ip remote_host"
            }
            Self::Method => {
                "request_method method request.method http.request.method RequestMethod ClientRequestMethod"
            }
            Self::Path => {
                "request_uri uri request.uri path request.path url url.original url.path RequestPath \
                 ClientRequestURI ClientRequestPath"
            }
            Self::Request => "request request_line",
            Self::Host => "host http_host request.host url.domain RequestHost ClientRequestHost server_name",
            Self::Agent => {
                "http_user_agent user_agent agent user_agent.original request.headers.User-Agent request_User-Agent \
                 ClientRequestUserAgent"
            }
            Self::Status => "status status_code http.response.status_code DownstreamStatus EdgeResponseStatus",
            Self::Subject | Self::Tier => "",
        }
    }
}

/// Where the fields of a line are.
#[derive(Clone, Debug)]
pub struct Fields(pub(super) Node);

/// A name, and what it means.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) name: String,
    /// The lower the number, the more is the name preferred.
    pub(super) means: Option<(Field, usize)>,
    pub(super) below: Vec<Node>,
}

impl Default for Fields {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Fields {
    /// The known names, but for these fields the given ones. A dot leads into an object, and may also be part of a name.
    #[must_use]
    pub fn new(given: &[(Field, String)]) -> Self {
        let mut root = Node::default();
        for field in Field::ALL {
            let own = given.iter().filter(|(known, _)| *known == field).map(|(_, name)| name.as_str());
            let known = field.known().split_whitespace();
            let names: Vec<&str> = if own.clone().count() > 0 { own.collect() } else { known.collect() };
            for (rank, name) in names.iter().enumerate() {
                root.add([*name].into_iter(), (field, rank));
                root.add(name.split('.'), (field, rank));
            }
        }
        Self(root)
    }
}

impl Node {
    fn add<'a>(&mut self, mut path: impl Iterator<Item = &'a str>, means: (Field, usize)) {
        let Some(name) = path.next() else {
            self.means = Some(means);
            return;
        };
        let place = self.below.iter().position(|node| node.name == name).unwrap_or_else(|| {
            self.below.push(Self { name: name.into(), ..Self::default() });
            self.below.len() - 1
        });
        self.below[place].add(path, means);
    }
}
