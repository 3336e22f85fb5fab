-- The usual decision in fewer steps: a check by windows and buckets, all of one key or each of its own, without a token, that charges no
-- denial.
--
-- KEYS     the states, as in decide.lua: one of all quotas, or one for each
-- ARGV     four for each quota, as in decide.lua, then as far as they are needed: cost, now, ttl_min, all as in decide.lua. Nothing
--          for `cost` is 1, and for `now` the clock of this server. `cost` is from 1 to each limit. call.rs keeps the numbers so
--          small that doubles are exact here: what `..` prints is below 10^14, counts of a window below 2^31, and limit * unit at
--          most 2^51
-- Answers  as decide.lua does, or an empty text if this is a case for decide.lua: a state that is corrupt, or more than a minute
--          ahead. Nothing is written then.
--
-- It is written for speed. A number as an argument of redis.call costs a quarter of a microsecond more than its text.
-- `%d` is faster than `..`, and correct only below 2^31. Each table and each global name that is read has its price.
local match, format, sub, call = string.match, string.format, string.sub, redis.call
local KEYS, ARGV = KEYS, ARGV
local rows, quotas_end = #KEYS, #ARGV - #ARGV % 4
local units, now, ttl_min = ARGV[quotas_end + 1] or '1', ARGV[quotas_end + 2], ARGV[quotas_end + 3]
local known = now and now ~= 'server'
if not known then
  local time = call('TIME')
  local micros = time[2]
  if #micros < 6 then
    micros = sub('00000' .. micros, -6)
  end
  now = time[1] .. sub(micros, 1, 3)
end
local at, cost = now + 0, units + 0
local admitted, life, row, after = true, 0, 0, ''
-- By this server's clock, a window that was charged before has the expiry of its end already. To set it again would cost a fifth of the step.
local stays = not known and not ttl_min
local stored, place
-- Of several rows: whether one exists, and what all were and will be, with room for three.
local any, before, afters = false, '', rows > 1 and { '', '', '' }

for i = 1, quotas_end, 4 do
  local kind, limit, unit = ARGV[i], ARGV[i + 1] + 0, ARGV[i + 2] + 0
  if i == 1 or afters then
    row = row + 1
    -- No state of eight windows and buckets has 512 bytes.
    stored, place, after = call('GETRANGE', KEYS[row], '0', '511'), 1, ''
    if #stored == 512 then
      return ''
    end
  end
  local lasts

  if kind == 'tb' or kind == 'lb' then
    local refill, full, level, lag, since = ARGV[i + 3] + 0, limit * unit, 0, 0, now
    if stored ~= '' then
      level, since, place = match(stored, kind == 'tb' and '^tb1 (%d+) (%d+);()' or '^lb1 (%d+) (%d+);()', place)
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
    level, stays = level + cost * unit, false
    if level <= full then
      lasts = lag + math.ceil(level / refill)
      after = after .. kind .. '1 ' .. (level < 2147483648 and format('%d', level) or level) .. ' ' .. since .. ';'
    end

  else
    local current, previous, used, start = at - at % unit, '0', 0, nil
    if stored ~= '' then
      if kind == 'sw' then
        start, previous, used, place = match(stored, '^sw1 (%d+) (%d+) (%d+);()', place)
      else
        start, used, place = match(stored, '^fw1 (%d+) (%d+);()', place)
      end
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
    stays = stays and used > cost
    local left, fits = current + unit - at, used <= limit
    -- The right side is at most 2^51, and negative above the limit. Products that are rounded are larger.
    if kind == 'sw' then
      fits = previous * (left < unit and left or unit) <= (limit - used) * unit
    end
    if fits then
      lasts = kind == 'sw' and left + unit or left
      after = after .. kind .. '1 ' .. (start or current) .. (kind == 'sw' and ' ' .. previous or '') .. format(' %d;', used)
    elseif used > 2251799813685248 or previous + 0 > 2251799813685248 then
      return ''
    end
  end

  if not lasts then
    admitted = false
  elseif lasts > life then
    life = lasts
  end
  if (afters or i + 4 > quotas_end) and place <= #stored then
    return ''
  end
  if afters then
    any, afters[row] = any or stored ~= '', after
    before = before .. (stored ~= '' and stored or kind .. (kind == 'sw' and '1 0 0 0;' or '1 0 0;'))
  end
end

if not afters then
  before = stored
elseif not any then
  before = ''
end
if admitted then
  if ttl_min and life < ttl_min + 0 then
    life = ttl_min
  elseif not stays then
    life = life < 2147483648 and format('%d', life) or life .. ''
  end
  for nth = 1, rows do
    local text = afters and afters[nth] or after
    if stays then
      call('SET', KEYS[nth], text, 'KEEPTTL')
    else
      call('SET', KEYS[nth], text, 'PX', life)
    end
  end
end
if not known then
  before = '@' .. now .. ' ' .. units .. ' ' .. before
end
return (admitted and 'a' or 'd') .. before
