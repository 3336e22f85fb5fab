-- A minimal token bucket, which benches/redis.rs compares with decide.lua.
local capacity, refill, per = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now, cost = tonumber(ARGV[4]), tonumber(ARGV[5])
local level = 0
local stored = redis.call('GET', KEYS[1])
if stored then
  local before, at = string.match(stored, '^(%d+) (%d+)$')
  level = math.max(0, tonumber(before) - math.max(0, now - tonumber(at)) * refill)
end
if level + cost * per > capacity * per then
  return 0
end
level = level + cost * per
redis.call('SET', KEYS[1], string.format('%.0f %.0f', level, now), 'PX', math.ceil(level / refill))
return 1
