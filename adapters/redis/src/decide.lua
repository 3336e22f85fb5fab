-- One decision in one step: reads the state of a key, decides as tidegate-core does, and writes the state back.
--
-- KEYS[1]  the state: one part for each quota, `<kind>1 <numbers>;` (1 is the version of the format)
--            tb1 <level> <at>;   lb1 <level> <at>;   fw1 <start> <used>;   sw1 <start> <previous> <current>;
--            sl1 <at>:<units> <at>:<units> ...;
-- KEYS[2]  the first answer to a check with an idempotency token; it begins with `s` once the charge is settled
-- ARGV     mode, now, cost, ttl_min, then four for each quota: kind, limit, unit, refill
--            mode  c check, d check that charges denials, p peek, r refund, s settle the charge of KEYS[2] to `cost`
--            now   the caller's clock, or `server` for the clock of this server
--          last, for a token: how long to keep the answer; for a refund: when the cost was charged
-- Answers  `a` (admitted), `d` (denied) or `r` (admitted before, or settled before), then `@<now> <cost> ` if the caller
--          cannot know them, then the previous state; after a settlement, the new one.
--          Nothing is written after an error: CORRUPT for a state that this policy cannot have written by now, REUSED for
--          a token whose charge had another cost, UNKNOWN if there is no charge to settle.
--
-- Numbers are doubles. Every product and sum that decides is below 2^53 and therefore exact. So are `%`, math.floor(a / b)
-- and math.ceil(a / b) of whole a < 2^53: if a / b is not whole, it is at least 1 / b away from a whole number, and
-- rounding moves it by at most a / b / 2^53 < 1 / b. A value that may pass 2^53 is only compared with smaller ones, or
-- subtracted from them.
--
-- The server does nothing else while this runs, so it is written for speed: text + 0 is tonumber(text) at half the cost,
-- `%d` costs half of `%.0f` (but is correct only below 2^31), and a number that has not changed keeps its text.
local match, format, ceil = string.match, string.format, math.ceil
local MAX_UNITS, MAX_INSTANT = 2251799813685248, 281474976710655
-- A log's units, and a bucket's longest debt in milliseconds.
local MAX_LOG, MAX_DEBT = 4294967295, 31536000000
-- One minute (MAX_CLOCK_SKEW) and 20 years, as in the core.
local MAX_SKEW, IMPLAUSIBLE_AFTER = 60000, 630720000000

local mode, now, cost, ttl_min = ARGV[1], ARGV[2], ARGV[3] + 0, ARGV[4] + 0
local now_text = now
local quotas_end = #ARGV - #ARGV % 4
local refund, overdraw, charged_at = mode == 'r', false, 0
if refund then
  charged_at = ARGV[quotas_end + 1] + 0
end
local once, settle = KEYS[2], mode == 's'
local first
if once then
  first = redis.call('GET', once)
  if first then
    local mark, at, charged = match(first, '^([as])@(%d+) (%d+) ')
    if not mark then
      return redis.error_reply('CORRUPT first answer')
    end
    if not settle then
      if charged ~= ARGV[3] then
        return redis.error_reply('REUSED by a check of cost ' .. ARGV[3])
      end
      return 'r' .. string.sub(first, 2)
    end
    if mark == 's' then
      mode = 'p'
    else
      cost = cost - charged
      refund, overdraw, charged_at = cost <= 0, cost > 0, at + 0
      cost = math.abs(cost)
    end
  elseif settle then
    return redis.error_reply('UNKNOWN charge')
  end
end
local stored = redis.call('GET', KEYS[1])

local answer = stored or ''
if now == 'server' then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
  now_text = format('%.0f', now)
  answer = '@' .. now_text .. ' ' .. ARGV[3] .. ' ' .. answer
else
  now = now + 0
  if once then
    answer = '@' .. now_text .. ' ' .. ARGV[3] .. ' ' .. answer
  end
end

-- No part of a written state lies after `latest`. A part that does was written by a wrong clock, and is moved back.
local latest, implausible = math.min(now + MAX_SKEW, MAX_INSTANT), math.min(now + IMPLAUSIBLE_AFTER, MAX_INSTANT)
local peek, charge_denied = mode == 'p', mode == 'd'

-- The quotas decide together, all or nothing. A cost that never fits does not fit now, either.
local fits, never, used_at_all, moved
local after, place, life
local admitted

for pass = 1, 2 do
  fits, never, used_at_all, moved = true, false, false, false
  after, place, life = '', 1, ttl_min

  for i = 5, quotas_end, 4 do
    local kind, limit, unit = ARGV[i], ARGV[i + 1] + 0, ARGV[i + 2] + 0
    local unused_after = 0
    if cost > limit then
      never = true
    end

    if kind == 'tb' or kind == 'lb' then
      local refill, full = ARGV[i + 3] + 0, limit * unit
      local level, at, at_text = 0, 0, '0'
      if stored then
        level, at_text, place = match(stored, kind == 'tb' and '^tb1 (%d+) (%d+);()' or '^lb1 (%d+) (%d+);()', place)
        if place then
          level, at = level + 0, at_text + 0
        end
        if not place or level > MAX_UNITS or at > implausible or level - full > IMPLAUSIBLE_AFTER * refill then
          return redis.error_reply('CORRUPT quotas[' .. (i - 5) / 4 .. ']')
        end
      end
      if at > latest then
        at, at_text, moved = latest, format('%.0f', latest), true
      end
      if now > at then
        level = level - (now - at) * refill
        if level < 0 then
          level = 0
        end
        at, at_text = now, now_text
      end
      if not refund then
        local charged = level + cost * unit
        if charged > full then
          fits = false
          charged = math.max(level, overdraw and math.min(charged, MAX_UNITS, full + MAX_DEBT * refill) or full)
        end
        level = charged
      else
        -- The level drained since then may have been this charge. Only the rest is surely still in the bucket.
        local due = cost * unit - math.max(at - charged_at, 0) * refill
        level = math.max(level - math.max(due, 0), 0)
      end
      if level > 0 then
        -- The level is as of `at`, and drains from then on.
        unused_after = at - now + ceil(level / refill)
      end
      after = after .. kind .. '1 ' .. format(level < 2147483648 and '%d' or '%.0f', level) .. ' ' .. at_text .. ';'

    elseif kind == 'fw' then
      local start, used, start_text = 0, 0, '0'
      if stored then
        start_text, used, place = match(stored, '^fw1 (%d+) (%d+);()', place)
        if place then
          start, used = start_text + 0, used + 0
        end
        if not place or start > implausible or start % unit ~= 0 or used > MAX_UNITS / unit then
          return redis.error_reply('CORRUPT quotas[' .. (i - 5) / 4 .. ']')
        end
      end
      local current = now - now % unit
      if current > start then
        start, used, start_text = current, 0, format('%.0f', current)
      elseif start > latest then
        start, moved = latest - latest % unit, true
        start_text = format('%.0f', start)
      end
      if not refund then
        local charged = used + cost
        if charged > limit then
          fits = false
          charged = math.max(used, overdraw and math.min(charged, math.floor(MAX_UNITS / unit)) or limit)
        end
        used = charged
      elseif charged_at - charged_at % unit == start then
        used = math.max(used - cost, 0)
      end
      if used > 0 then
        unused_after = start + unit - now
      end
      after = after .. 'fw1 ' .. start_text .. format(used < 2147483648 and ' %d;' or ' %.0f;', used)

    elseif kind == 'sw' then
      local start, previous, used, start_text = 0, 0, 0, '0'
      if stored then
        start_text, previous, used, place = match(stored, '^sw1 (%d+) (%d+) (%d+);()', place)
        if place then
          start, previous, used = start_text + 0, previous + 0, used + 0
        end
        if not place or start > implausible or start % unit ~= 0 or math.max(previous, used) > MAX_UNITS / unit then
          return redis.error_reply('CORRUPT quotas[' .. (i - 5) / 4 .. ']')
        end
      end
      local current = now - now % unit
      if current > start then
        previous, used = current - start == unit and used or 0, 0
        start, start_text = current, format('%.0f', current)
      elseif start > latest then
        start, moved = latest - latest % unit, true
        start_text = format('%.0f', start)
      end
      local left = unit - math.max(now - start, 0)
      if not refund then
        local charged = used + cost
        if previous * left + charged * unit > limit * unit then
          fits = false
        end
        used = math.max(used, math.min(charged, overdraw and math.floor(MAX_UNITS / unit) or limit))
      else
        local charged_in = charged_at - charged_at % unit
        if charged_in == start then
          used = math.max(used - cost, 0)
        elseif start - charged_in == unit then
          previous = math.max(previous - cost, 0)
        end
      end
      if used > 0 then
        unused_after = math.max(start - now, 0) + left + unit
      elseif previous > 0 then
        unused_after = math.max(start - now, 0) + left
      end
      local small = previous < 2147483648 and used < 2147483648
      after = after .. 'sw1 ' .. start_text .. format(small and ' %d %d;' or ' %.0f %.0f;', previous, used)

    elseif kind == 'sl' then
      local ats, units, count, sum = {}, {}, 0, 0
      if stored then
        place = match(stored, '^sl1()', place)
        while place do
          local at, some, rest = match(stored, '^ (%d+):(%d+)()', place)
          if not at then
            break
          end
          at, some, place = at + 0, some + 0, rest
          if at > implausible or some < 1 or count > 0 and at <= ats[count] then
            return redis.error_reply('CORRUPT quotas[' .. (i - 5) / 4 .. ']')
          end
          count, sum = count + 1, sum + some
          ats[count], units[count] = at, some
        end
        place = place and match(stored, '^;()', place)
        if not place or sum > MAX_LOG then
          return redis.error_reply('CORRUPT quotas[' .. (i - 5) / 4 .. ']')
        end
      end
      if count > 0 and ats[count] > latest then
        local ahead = 0
        while count > 0 and ats[count] >= latest do
          ahead, count = ahead + units[count], count - 1
        end
        count, moved = count + 1, true
        ats[count], units[count] = latest, ahead
      end
      local instant = now
      if count > 0 and ats[count] > now then
        instant = ats[count]
      end
      local oldest, newest = 1, nil
      if refund then
        for entry = 1, count do
          if ats[entry] == charged_at then
            units[entry] = math.max(units[entry] - cost, 0)
          end
        end
      else
        while oldest <= count and instant - ats[oldest] >= unit do
          sum, oldest = sum - units[oldest], oldest + 1
        end
        if sum + cost > limit then
          fits = false
        end
        if overdraw then
          limit, cost = MAX_LOG, math.min(cost, MAX_LOG - sum)
        end
        if cost == 0 then
          oldest = 1
        else
          if count > 0 and ats[count] == instant then
            units[count] = units[count] + cost
          else
            count = count + 1
            ats[count], units[count] = instant, cost
          end
          -- Only a charged denial exceeds the limit. It replaces the oldest entries.
          local excess = sum + cost - math.max(limit, sum)
          while excess > 0 and oldest <= count do
            local part = math.min(units[oldest], excess)
            units[oldest], excess = units[oldest] - part, excess - part
            if units[oldest] == 0 then
              oldest = oldest + 1
            end
          end
        end
      end
      local parts = { 'sl1' }
      for entry = oldest, count do
        if units[entry] > 0 then
          parts[#parts + 1] = format(' %.0f:%.0f', ats[entry], units[entry])
          newest = ats[entry]
        end
      end
      if newest and newest + unit > now then
        unused_after = newest + unit - now
      end
      after = after .. table.concat(parts) .. ';'

    else
      return redis.error_reply('ERR unknown kind of quota: ' .. kind)
    end

    if unused_after > 0 then
      used_at_all = true
      if unused_after > life then
        life = unused_after
      end
    end
  end

  if stored and place <= #stored then
    return redis.error_reply('CORRUPT more than the policy has')
  end

  if pass == 1 then
    admitted = fits
  end
  -- A denial charges nothing. But a state that was moved back must be written, which the second pass does at cost 0.
  if not moved or refund or overdraw or peek or fits or charge_denied and not never then
    break
  end
  cost = 0
end

local write = false
if overdraw then
  write = true
elseif refund then
  write = stored
elseif not peek then
  write = moved or fits or charge_denied and not never
end
-- A key without a state that is still unused needs none.
if write and (stored or used_at_all) then
  redis.call('SET', KEYS[1], after, 'PX', format(life < 2147483648 and '%d' or '%.0f', life))
end

if settle then
  if not peek then
    redis.call('SET', once, 's' .. string.sub(first, 2), 'KEEPTTL')
  end
  return (peek and 'r@' or 'a@') .. now_text .. ' ' .. ARGV[3] .. ' ' .. (write and after or stored or '')
end

answer = (admitted and 'a' or 'd') .. answer
-- A check that charged nothing is not stored, and is decided anew. So the limit bounds the tokens of a key.
if once and admitted and cost > 0 then
  redis.call('SET', once, answer, 'PX', ARGV[quotas_end + 1])
end
return answer
