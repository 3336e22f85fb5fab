-- The usual decision in fewer steps: a check by one window or bucket, without a token, that charges no denial.
--
-- KEYS     the state, as in decide.lua
-- ARGV     kind, limit, unit, cost, then as far as they are needed: refill, now, ttl_min, all as in decide.lua. Nothing for
--          `now` is the clock of this server. `cost` is from 1 to the limit. script.rs keeps the numbers so small that doubles
--          are exact here: what `..` prints is below 10^14, counts of a window below 2^31, and limit * unit at most 2^51
-- Answers  as decide.lua does, or an empty text if this is a case for decide.lua: a state that is corrupt, or more than a minute
--          ahead. Nothing is written then.
--
-- It is written for speed. A number as an argument of redis.call costs a quarter of a microsecond more than its text.
-- `%d` is faster than `..`, and correct only below 2^31.
local match, format, sub = string.match, string.format, string.sub
local kind, limit, unit, cost, now = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4], ARGV[6]
-- No state of one window or bucket has 64 bytes.
local stored = redis.call('GETRANGE', KEYS[1], '0', '63')
if #stored == 64 then
  return ''
end
local known = now and now ~= 'server'
if not known then
  local time = redis.call('TIME')
  local micros = time[2]
  if #micros < 6 then
    micros = sub('00000' .. micros, -6)
  end
  now = time[1] .. sub(micros, 1, 3)
end
local at = now + 0
local after, life

if kind == 'tb' or kind == 'lb' then
  local refill, full, level, lag, since = ARGV[5] + 0, limit * unit, 0, 0, now
  if stored ~= '' then
    level, since = match(stored, kind == 'tb' and '^tb1 (%d+) (%d+);$' or '^lb1 (%d+) (%d+);$')
    if not level then
      return ''
    end
    level, lag = level + 0, since - at
    -- Above the capacity it is a debt, or the capacity was larger.
    if lag > 60000 or level > full and (level > 2251799813685248 or level - full > 630720000000 * refill) then
      return ''
    end
    if lag <= 0 then
      level, lag, since = level + lag * refill, 0, now
      if level < 0 then
        level = 0
      end
    end
  end
  level = level + cost * unit
  if level <= full then
    life = lag + math.ceil(level / refill)
    after = kind .. '1 ' .. (level < 2147483648 and format('%d', level) or level) .. ' ' .. since .. ';'
  end

elseif kind == 'fw' then
  local current, used, start = at - at % unit, 0, nil
  if stored ~= '' then
    start, used = match(stored, '^fw1 (%d+) (%d+);$')
    if not start then
      return ''
    end
    local began = start + 0
    if began ~= current then
      if began > at + 60000 or began % unit ~= 0 or used + 0 > 2251799813685248 then
        return ''
      end
      if began > current then
        current = began
      else
        start, used = nil, 0
      end
    end
  end
  used = used + cost
  if used <= limit then
    life = current + unit - at
    after = 'fw1 ' .. (start or current) .. format(' %d;', used)
  elseif used > 2251799813685248 then
    return ''
  end

else
  local current, previous, used, start = at - at % unit, '0', 0, nil
  if stored ~= '' then
    start, previous, used = match(stored, '^sw1 (%d+) (%d+) (%d+);$')
    if not start then
      return ''
    end
    local began = start + 0
    if began ~= current then
      if began > at + 60000 or began % unit ~= 0 or previous + 0 > 2251799813685248 or used + 0 > 2251799813685248 then
        return ''
      end
      if began > current then
        current = began
      else
        start, previous, used = nil, current - began == unit and used or '0', 0
      end
    end
  end
  used = used + cost
  local left = current + unit - at
  -- The right side is at most 2^51, and negative above the limit. Products that are rounded are larger.
  if previous * (left < unit and left or unit) <= (limit - used) * unit then
    life = left + unit
    after = 'sw1 ' .. (start or current) .. ' ' .. previous .. format(' %d;', used)
  elseif used > 2251799813685248 or previous + 0 > 2251799813685248 then
    return ''
  end
end

local verdict = 'd'
if after then
  local ttl_min = ARGV[7]
  if ttl_min and life < ttl_min + 0 then
    life = ttl_min
  elseif life < 2147483648 then
    life = format('%d', life)
  else
    life = life .. ''
  end
  verdict = 'a'
  redis.call('SET', KEYS[1], after, 'PX', life)
end
if known then
  return verdict .. stored
end
return verdict .. '@' .. now .. ' ' .. cost .. ' ' .. stored
