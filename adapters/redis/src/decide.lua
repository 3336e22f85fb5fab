-- One decision in one step: reads the states of its keys, decides as tidegate-core does, and writes the states back.
--
-- KEYS     a state for each row: one part for each quota, `<kind>1 <numbers>;` (1 is the version of the format)
--            tb1 <level> <at>;   lb1 <level> <at>;   fw1 <start> <used>;   sw1 <start> <previous> <current>;   cw1 <end> <used> <carried>;
--            sl1 <at>:<units> <at>:<units> ...;   cc1 <id>:<at>:<cost> <id>:<at>:<cost> ...;   pn1 <violations> <until>;
--            or, if the block was set by hand, pn1 <violations> <until> <length>;   ba1 <debt> <units>:<expires> ...;
--          then, for a token: the first answer to a check with an idempotency token; it begins with `s` once the charge is settled
--          or for a grant: what was granted under its token, `g <units>`
-- ARGV     mode, now, cost, ttl_min, then four for each quota: kind, and its three parameters
--            mode  c check, d check that charges denials, p peek, r refund, o charge also beyond the limit, s settle the charge of the
--                  token to `cost`, or `-` for what was charged, b block for `cost` ms, or end a block, g grant `cost` units to the balance,
--                  k make all unused but the balance; with rows, a digit for the quotas of each, or 0 for one of the dimension before
--            now   the caller's clock, or `server` for the clock of this server
--          last, for a check with a token: how long to keep the answer, and the id of the charge; for a settlement: the
--          id; for a refund: when the cost was charged; for a grant: how long to remember it, and when the units expire
-- Answers  `a` (admitted), `d` (denied) or `r` (admitted, settled or granted before), then `@<now> <cost> ` if the caller
--          cannot know them, or `@<now> <cost>+<paid> ` if a balance paid, then the previous state; after a settlement or a grant, the
--          new one.
--          An empty text for a state with loans, which is a case for lend.lua. Nothing is written then, nor after an error: CORRUPT
--          for a state that this policy cannot have written by now, REUSED for a token whose charge had another cost, UNKNOWN if
--          there is no charge to settle, GRANT and the reason if nothing is granted.
--
-- What is between `--+ balance` and `--+ end` is for policies with a balance. The script for the others has the lines after `--|` there.
-- It follows numbers.lua, and may be a function of KEYS, ARGV and redis.
--
-- The server does nothing else while this runs, so it is written for speed: text + 0 is tonumber(text) at half the cost,
-- `%d` costs half of `%.0f` (but is correct only below 2^31), redis.call takes texts faster than numbers, and a number that
-- has not changed keeps its text.
local mode, now, cost, ttl_min = ARGV[1], ARGV[2], ARGV[3], ARGV[4] + 0
local now_text = now
local quotas_end = #ARGV - #ARGV % 4
local rows, counts = 1, nil
if #mode > 1 then
  mode, counts = string.sub(mode, 1, 1), string.sub(mode, 2)
  rows = #counts
end

-- A value that is longer than any state is not read: that would block the server. GETRANGE answers an empty text for a key that
-- does not exist.
local longest = MAX_PART * (quotas_end - 4) / 4
local last = format('%d', longest)
local function get(key)
  local text = redis.call('GETRANGE', key, '0', last)
  if #text > longest then
    return nil, redis.error_reply('CORRUPT more than ' .. longest .. ' bytes')
  end
  return text ~= '' and text
end

--+ balance
local unused = { tb = '1 0 0;', lb = '1 0 0;', fw = '1 0 0;', sw = '1 0 0 0;', sl = '1;', cc = '1;', pn = '1 0 0;', cw = '1 0 0 0;', ba = '1 0;' }
-- How many quotas a row has.
local function size(row)
  return math.max(string.sub(counts, row, row), 1)
end

-- A balance is left as it is when all else is made unused.
if mode == 'k' then
  local quota = 5
  for row = 1, rows do
    if ARGV[quota] ~= 'ba' then
      redis.call('DEL', KEYS[row])
    end
    quota = counts and quota + 4 * size(row)
  end
  return 'a'
end

-- The lots that begin at a place of a text: units and expiry of each, their number, and where they end. Nothing if they are not
-- what this script writes.
local function lots_at(text, place)
  local units, ends, count, sum = {}, {}, 0, 0
  while true do
    local some, at, rest = match(text, '^ (%d+):(%d+)()', place)
    if not some then
      break
    end
    some, at, place, count = some + 0, at + 0, rest, count + 1
    sum = sum + some
    if some < 1 or at > MAX_INSTANT or count > 1 and at <= ends[count - 1] then
      return nil
    end
    units[count], ends[count] = some, at
  end
  if string.sub(text, place, place) == ';' and count <= MAX_LOTS and sum <= MAX_UNITS then
    return units, ends, count, place + 1
  end
end

--+ end
local refund, overdraw, charged_at, actual = mode == 'r', mode == 'o', 0, nil
--+ balance
-- What a balance paid of the charge that is settled, and what of it returns. What it pays, and what it is granted.
local paid_before, to_balance, paid, grant = 0, 0, 0, nil
if mode == 'g' then
  grant = cost + 0
end
--+ end
if refund then
  charged_at = ARGV[quotas_end + 1] + 0
end
local once, settle = KEYS[rows + 1], mode == 's'
local first, too_long
if once then
  first, too_long = get(once)
  if too_long then
    return too_long
  end
--+ balance
  if first and grant then
    local granted = match(first, '^g (%d+)$')
    if not granted then
      return redis.error_reply('CORRUPT first grant')
    end
    if granted ~= cost then
      return redis.error_reply('REUSED by a grant of ' .. cost)
    end
    mode = 'p'
  elseif first then
    local mark, at, charged, some = match(first, '^([as])@(%d+) (%d+)%+?(%d*) ')
--|   if first then
--|     local mark, at, charged = match(first, '^([as])@(%d+) (%d+) ')
--+ end
    if not mark then
      return redis.error_reply('CORRUPT first answer')
    end
    if not settle then
      if charged ~= cost then
        return redis.error_reply('REUSED by a check of cost ' .. cost)
      end
      return 'r' .. string.sub(first, 2)
    end
    if cost == '-' then
      cost = charged
    end
    if mark == 's' then
      mode = 'p'
    else
      actual, charged_at = cost + 0, at + 0
      refund, overdraw = actual <= charged + 0, actual > charged + 0
      cost = math.abs(actual - charged)
--+ balance
      paid_before = tonumber(some) or 0
      to_balance = refund and math.min(cost, paid_before) or 0
--+ end
    end
  elseif settle then
    return redis.error_reply('UNKNOWN charge')
  end
end
--+ balance
cost = grant and 0 or cost + 0
--| cost = cost + 0
--+ end
-- How long to block. What a block does not change keeps its text, and a key without a state starts with unused quotas. So one row
-- is treated as several are.
local span
if mode == 'b' then
  span, cost, counts = cost, 0, counts or format('%d', (quotas_end - 4) / 4)
--+ balance
elseif mode == 'g' then
  counts = counts or format('%d', (quotas_end - 4) / 4)
--+ end
end

-- Several states are decided on as one text. A row that does not exist yet counts as unused. `kept` says which rows exist, or
-- are used after the step, `begins` where each begins in the text, and `ended` where each ends in the text after the step.
--+ balance
local stored, all, kept, begins, ended, lives
--| local stored, all, kept, begins, ended
--+ end
if not counts then
  stored, too_long = get(KEYS[1])
  if too_long then
    return too_long
  end
else
--+ balance
--|   local unused = { tb = '1 0 0;', lb = '1 0 0;', fw = '1 0 0;', sw = '1 0 0 0;', sl = '1;', cc = '1;', pn = '1 0 0;', cw = '1 0 0 0;' }
--+ end
  local any, quota, length = false, 5, 0
--+ balance
  all, kept, begins, ended, lives = {}, {}, {}, {}, {}
--|   all, kept, begins, ended = {}, {}, {}, {}
--+ end
  for row = 1, rows do
--+ balance
    local next_quota, text = quota + 4 * size(row), nil
--|     local next_quota, text = quota + 4 * string.sub(counts, row, row), nil
--+ end
    text, too_long = get(KEYS[row])
    if too_long then
      return too_long
    end
    any, kept[row], begins[row] = any or text, text, length + 1
    if not text then
      text = ''
      for i = quota, next_quota - 1, 4 do
        text = text .. ARGV[i] .. (unused[ARGV[i]] or ';')
      end
    end
    all[row], quota, length = text, next_quota, length + #text
  end
--+ balance
  stored = (any or span or mode == 'g') and table.concat(all)
--|   stored = (any or span) and table.concat(all)
--+ end
end

--+ balance
local answer, told = stored or '', nil
--| local answer = stored or ''
--+ end
if now == 'server' then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
  now_text = format('%.0f', now)
--+ balance
  told = true
--|   answer = '@' .. now_text .. ' ' .. ARGV[3] .. ' ' .. answer
--+ end
else
  now = now + 0
--+ balance
  told = once
--|   if once then
--|     answer = '@' .. now_text .. ' ' .. ARGV[3] .. ' ' .. answer
--|   end
--+ end
end

-- No part of a written state lies after `latest`. A part that does was written by a wrong clock, and is moved back.
local latest, implausible = math.min(now + MAX_SKEW, MAX_INSTANT), math.min(now + IMPLAUSIBLE_AFTER, MAX_INSTANT)
local peek, charge_denied = mode == 'p', mode == 'd'

-- The quotas decide together, all or nothing. A cost that never fits does not fit now, either.
local fits, never, used_at_all, moved
local after, place, life
local admitted
-- Costs to return, each with the time of its charge. Which penalties count a violation, or are changed by hand. Whether a slot
-- may be taken. Whether a quota keeps its state unless one of these changes it.
--+ balance
local returns, violated, takes, keeps = nil, nil, true, span ~= nil or mode == 'g'
--| local returns, violated, takes, keeps = nil, nil, true, span ~= nil
--+ end

for pass = 1, 2 do
  fits, never, used_at_all, moved = true, false, false, false
  after, place, life = '', 1, ttl_min
  -- Where the next row begins, and whether an earlier dimension denies.
  local row, next_row, denied = 1, counts and 5 + 4 * string.sub(counts, 1, 1), false
  returns = refund and { { charged_at, cost } } or nil
--+ balance
  -- What the quota before a balance takes of the cost, what it admits, and how much it admits at most.
  local owed, room, covered_limit = cost, 0, 0
--+ end

  for i = 5, quotas_end, 4 do
    local kind, limit, unit = ARGV[i], ARGV[i + 1] + 0, ARGV[i + 2] + 0
    local unused_after = 0
    local from, length, was_moved
    if keeps then
      from, length, was_moved, moved = place, #after, moved, false
    end
--+ balance
    -- The quota that a balance covers takes as much as it admits.
    local covered = i < quotas_end - 4 and ARGV[i + 4] == 'ba' and ARGV[i + 7] == '1'
    local due, less = cost, covered and to_balance or 0
    if covered then
      -- A calendar window may have carried some over.
      covered_limit = limit + (kind == 'cw' and math.floor(ARGV[i + 3] / 1048576) or 0)
    elseif cost > limit + (kind == 'ba' and covered_limit or 0) and kind ~= 'cc' and kind ~= 'pn' then
--|     if cost > limit and kind ~= 'cc' and kind ~= 'pn' then
--+ end
      never = true
    end
    if i == next_row then
      ended[row], row = #after, row + 1
--+ balance
      next_row = i + 4 * size(row)
      if string.sub(counts, row, row) ~= '0' then
        denied, fits = denied or not fits, true
      end
--|       next_row = i + 4 * string.sub(counts, row, row)
--|       denied, fits = denied or not fits, true
--+ end
      if stored and place ~= begins[row] then
        return redis.error_reply('CORRUPT row ' .. row - 1)
      end
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
      if returns then
        for _, charge in ipairs(returns) do
          -- The level drained since then may have been this charge. Only the rest is surely still in the bucket.
--+ balance
          local left = (charge[2] - less) * unit - math.max(at - charge[1], 0) * refill
          level = math.max(level - math.max(left, 0), 0)
--|           local due = charge[2] * unit - math.max(at - charge[1], 0) * refill
--|           level = math.max(level - math.max(due, 0), 0)
--+ end
        end
      end
      if not refund then
--+ balance
        if covered then
          room = math.floor(math.max(full - level, 0) / unit)
          due = math.min(cost, room)
          owed = cost - due
        end
        local charged = level + due * unit
--|         local charged = level + cost * unit
--+ end
        if charged > full then
--+ balance
          fits = covered and fits
--|           fits = false
--+ end
          charged = math.max(level, overdraw and math.min(charged, MAX_UNITS, full + MAX_DEBT * refill) or full)
        end
        level = charged
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
        if not place or start > implausible or start % unit ~= 0 or used > MAX_UNITS then
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
      if returns then
        for _, charge in ipairs(returns) do
          if charge[1] - charge[1] % unit == start then
--+ balance
            used = math.max(used - (charge[2] - less), 0)
--|             used = math.max(used - charge[2], 0)
--+ end
          end
        end
      end
      if not refund then
--+ balance
        if covered then
          room = math.max(limit - used, 0)
          due = math.min(cost, room)
          owed = cost - due
        end
        local charged = used + due
--|         local charged = used + cost
--+ end
        if charged > limit then
--+ balance
          fits = covered and fits
--|           fits = false
--+ end
          charged = math.max(used, overdraw and math.min(charged, MAX_UNITS) or limit)
        end
        used = charged
      end
      if used > 0 then
        unused_after = start + unit - now
      end
      after = after .. 'fw1 ' .. start_text .. format(used < 2147483648 and ' %d;' or ' %.0f;', used)

    elseif kind == 'cw' then
      local ends, used, carried, ends_text = 0, 0, 0, '0'
      if stored then
        ends_text, used, carried, place = match(stored, '^cw1 (%d+) (%d+) (%d+);()', place)
        if place then
          ends, used, carried = ends_text + 0, used + 0, carried + 0
        end
        if not place or ends > implausible or math.max(used, carried) > MAX_UNITS then
          return redis.error_reply('CORRUPT quotas[' .. (i - 5) / 4 .. ']')
        end
      end
      local last = ARGV[i + 3] + 0
      local carry_over = math.floor(last / 1048576)
      local latest_end = calendar(unit, last, latest)
      if ends > latest_end then
        ends, moved = latest_end, true
        ends_text = format('%.0f', ends)
      end
      -- A window that ends at the last instant never ends.
      if now >= ends and ends < MAX_INSTANT then
        local current_end, start = calendar(unit, last, now)
        carried = ends < start and carry_over or math.min(math.max(limit + carried - used, 0), carry_over)
        ends, used, ends_text = current_end, 0, format('%.0f', current_end)
      end
      if returns then
        for _, charge in ipairs(returns) do
          if calendar(unit, last, charge[1]) == ends then
--+ balance
            used = math.max(used - (charge[2] - less), 0)
--|             used = math.max(used - charge[2], 0)
--+ end
          end
        end
      end
      if not refund then
--+ balance
        if covered then
          room = math.max(limit + carried - used, 0)
          due = math.min(cost, room)
          owed = cost - due
        end
        local charged, full = used + due, limit + carried
--|         local charged, full = used + cost, limit + carried
--+ end
        if charged > full then
--+ balance
          fits = covered and fits
--|           fits = false
--+ end
          charged = math.max(used, overdraw and math.min(charged, MAX_UNITS) or full)
--+ balance
        elseif not covered and cost > limit then
--|         elseif cost > limit then
--+ end
          fits = false
        end
        used = charged
      end
      if math.max(limit + carried - used, 0) < carry_over then
        -- The next window carries less than an unused one.
        unused_after = calendar(unit, last, ends) - now
      elseif used > 0 or carried ~= carry_over then
        unused_after = ends - now
      end
      after = after .. 'cw1 ' .. ends_text .. format(used < 2147483648 and carried < 2147483648 and ' %d %d;' or ' %.0f %.0f;', used, carried)

    elseif kind == 'sw' then
      local start, previous, used, start_text = 0, 0, 0, '0'
      if stored then
        start_text, previous, used, place = match(stored, '^sw1 (%d+) (%d+) (%d+);()', place)
        if place then
          start, previous, used = start_text + 0, previous + 0, used + 0
        end
        if not place or start > implausible or start % unit ~= 0 or math.max(previous, used) > MAX_UNITS then
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
      if returns then
        for _, charge in ipairs(returns) do
          local charged_in = charge[1] - charge[1] % unit
          if charged_in == start then
            used = math.max(used - charge[2], 0)
          elseif start - charged_in == unit then
            previous = math.max(previous - charge[2], 0)
          end
        end
      end
      if not refund then
        local charged = used + cost
        if charged > limit or exceeds(previous, left, limit - charged, unit) then
          fits = false
        end
        used = math.max(used, math.min(charged, overdraw and MAX_UNITS or limit))
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
      if returns then
        for _, charge in ipairs(returns) do
          for entry = 1, count do
            if ats[entry] == charge[1] then
              local part = math.min(units[entry], charge[2])
              units[entry], sum = units[entry] - part, sum - part
            end
          end
        end
      end
      if not refund then
        while oldest <= count and instant - ats[oldest] >= unit do
          sum, oldest = sum - units[oldest], oldest + 1
        end
        if sum + cost > limit then
          fits = false
        end
        local added = cost
        if overdraw then
          limit, added = MAX_LOG, math.min(cost, MAX_LOG - sum)
        end
        if added == 0 then
          oldest = 1
        else
          if count > 0 and ats[count] == instant then
            units[count] = units[count] + added
          else
            count = count + 1
            ats[count], units[count] = instant, added
          end
          -- Only a charged denial exceeds the limit. It replaces the oldest entries.
          local excess = sum + added - math.max(limit, sum)
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

    elseif kind == 'cc' then
      local ids, ats, costs, count = {}, {}, {}, 0
      if stored then
        place = match(stored, '^cc1()', place)
        while place do
          local id, at, charged, rest = match(stored, '^ (%x+):(%d+):(%d+)()', place)
          if not id then
            break
          end
          at, charged, place = at + 0, charged + 0, rest
          if at > implausible or charged > MAX_UNITS or count > 0 and at < ats[count] then
            return redis.error_reply('CORRUPT quotas[' .. (i - 5) / 4 .. ']')
          end
          count = count + 1
          ids[count], ats[count], costs[count] = id, at, charged
        end
        place = place and match(stored, '^;()', place)
        if not place or count > 1000 then
          return redis.error_reply('CORRUPT quotas[' .. (i - 5) / 4 .. ']')
        end
      end
      for slot = count, 1, -1 do
        if ats[slot] <= latest then
          break
        end
        ats[slot], moved = latest, true
      end
      local instant = count > 0 and math.max(ats[count], now) or now
      local oldest, from, returns_cost = 1, 1, ARGV[i + 3] == '1' and mode ~= 'r' and not span
      while oldest <= count and instant - ats[oldest] >= unit do
        if returns_cost then
          returns, moved = returns or {}, true
          table.insert(returns, refund and #returns or #returns + 1, { ats[oldest], costs[oldest] })
        end
        oldest = oldest + 1
      end
      if returns_cost then
        from = oldest
      end
      if actual then
        local held
        for slot = oldest, count do
          if ids[slot] == ARGV[quotas_end + 1] then
            held = slot
            break
          end
        end
        if held then
          table.remove(ids, held)
          table.remove(ats, held)
          table.remove(costs, held)
          count = count - 1
        elseif returns_cost then
          -- The cost was returned when the slot expired.
          if refund then
            table.remove(returns)
          end
          refund, overdraw, cost = actual == 0, actual > 0, actual
        end
      elseif not refund then
        if count - oldest + 1 + math.min(cost, 1) > limit then
          fits = false
        elseif cost > 0 and takes then
          count, from = count + 1, oldest
          ids[count], ats[count], costs[count] = ARGV[quotas_end + 2] or '0000000000000000', instant, cost
        end
      end
      local parts = { 'cc1' }
      for slot = from, count do
        parts[#parts + 1] = ' ' .. ids[slot] .. format(':%.0f:%.0f', ats[slot], costs[slot])
      end
      if count > 0 and ats[count] + unit > now then
        unused_after = ats[count] + unit - now
      end
      after = after .. table.concat(parts) .. ';'

    elseif kind == 'pn' then
      local cap, factor, strikes, ends, by_hand = limit, ARGV[i + 3] + 0, 0, 0, 0
      if stored then
        local begins_at = place
        strikes, ends, place = match(stored, '^pn1 (%d+) (%d+);()', begins_at)
        if not place then
          strikes, ends, by_hand, place = match(stored, '^pn1 (%d+) (%d+) (%d+);()', begins_at)
        end
        if place then
          strikes, ends, by_hand = strikes + 0, ends + 0, by_hand + 0
        end
        if not place or strikes > 64 or ends > implausible or by_hand > MAX_BLOCK then
          return redis.error_reply('CORRUPT quotas[' .. (i - 5) / 4 .. ']')
        end
      end
      local block = by_hand
      if block == 0 and strikes > 0 then
        block = unit
        for _ = 2, strikes do
          block = math.min(block * factor, cap)
        end
      end
      -- A clock that stepped back does not make a block longer.
      local latest_end = math.min(now + math.min(block, cap), MAX_INSTANT)
      if ends > latest_end then
        ends, moved = latest_end, true
      end
      if span then
        violated = violated or {}
        violated[i] = true
        local left = math.max(strikes - math.floor(math.max(now - ends, 0) / cap), 0)
        if span > 0 then
          strikes, by_hand = left, math.min(span, cap)
          ends = math.min(now + by_hand, MAX_INSTANT)
        elseif left > 0 then
          -- The violations are undone from the end of the block on. A clock that steps back does not return the block.
          ends, by_hand = math.min(ends, now), 1
        else
          strikes, ends, by_hand = 0, 0, 0
        end
      elseif ends > now then
        fits = false
      elseif unit == 0 then
        -- Violations do not block.
      elseif violated and violated[i] then
        local most = 1
        block = unit
        while factor > 1 and block < cap do
          block, most = block * factor, most + 1
        end
        strikes = math.min(math.max(strikes - math.floor((now - ends) / cap), 0) + 1, most)
        block = unit
        for _ = 2, strikes do
          block = math.min(block * factor, cap)
        end
        ends, by_hand = math.min(now + math.min(block, cap), MAX_INSTANT), 0
      elseif not fits and pass == 1 then
        violated = violated or {}
        violated[i] = true
      end
      unused_after = math.max(ends + strikes * cap - now, 0)
      after = after .. format('pn1 %d %.0f', strikes, ends) .. (by_hand > 0 and format(' %.0f;', by_hand) or ';')

--+ balance
    elseif kind == 'ba' then
      local debt, units, ends, count = 0, {}, {}, 0
      if stored then
        debt, place = match(stored, '^ba1 (%d+)()', place)
        if place then
          debt = debt + 0
          units, ends, count, place = lots_at(stored, place)
        end
        if not place or debt > MAX_UNITS or debt > 0 and count > 0 then
          return redis.error_reply('CORRUPT quotas[' .. (i - 5) / 4 .. ']')
        end
      end
      local live, sum = 0, 0
      for lot = 1, count do
        sum = sum + units[lot]
        if ends[lot] > now then
          live = live + units[lot]
        end
      end
      -- Takes units from the lots that expire first, and returns what they have not.
      local function take(left)
        for lot = 1, count do
          if ends[lot] > now then
            local some = math.min(units[lot], left)
            units[lot], left = units[lot] - some, left - some
          end
        end
        return left
      end
      -- Adds units. Beyond the most lots, they join the one before theirs, or the first.
      local function add(some, expires)
        some = math.min(some, math.max(MAX_UNITS - sum, 0))
        local at = 1
        while at <= count and ends[at] < expires do
          at = at + 1
        end
        if some < 1 then
          return
        elseif at <= count and ends[at] == expires then
          units[at] = units[at] + some
        elseif count < MAX_LOTS then
          table.insert(units, at, some)
          table.insert(ends, at, expires)
          count = count + 1
        else
          at = math.max(at - 1, 1)
          units[at] = units[at] + some
        end
        sum = sum + some
      end
      if mode == 'g' then
        local expires = ARGV[quotas_end + 2] + 0
        if expires <= now then
          return redis.error_reply('GRANT expired')
        end
        local most = math.max(limit - live, 0) + debt
        if grant > most then
          return redis.error_reply(format('GRANT room %.0f', most))
        end
        local old_units, old_ends, known = units, ends, 0
        units, ends, count, sum = {}, {}, 0, 0
        for lot = 1, #old_units do
          if old_ends[lot] > now then
            count, sum = count + 1, sum + old_units[lot]
            units[count], ends[count] = old_units[lot], old_ends[lot]
            known = known + (old_ends[lot] == expires and 1 or 0)
          end
        end
        if count - known >= MAX_LOTS then
          return redis.error_reply('GRANT lots')
        end
        violated = { [i] = true }
        add(grant, expires)
        debt = debt > 0 and take(debt) or 0
      elseif refund then
        -- To the lots that paid, the last one first. The text of the first answer has what there was before.
        local before = paid_before > 0 and match(first, 'ba1 %d+()')
        if before then
          local old_units, old_ends, all_lots = lots_at(first, before)
          local payers, left = {}, paid_before
          for lot = 1, all_lots or 0 do
            if old_ends[lot] > charged_at and left > 0 then
              local some = math.min(old_units[lot], left)
              payers[#payers + 1], left = { some, old_ends[lot] }, left - some
            end
          end
          left = to_balance
          for payer = #payers, 1, -1 do
            local some = math.min(payers[payer][1], left)
            left = left - some
            if payers[payer][2] > now then
              add(some, payers[payer][2])
            end
          end
          debt = debt > 0 and take(debt) or 0
        end
      else
        local covers = ARGV[i + 3] == '1'
        local pays = covers and owed or cost
        if overdraw then
          local left = take(pays)
          if left > 0 then
            units, ends, count, debt = {}, {}, 0, math.min(debt + left, MAX_UNITS)
          end
        else
          if pays > live or debt > 0 and (not covers or cost == 0 and room == 0) then
            fits = false
          elseif takes then
            take(pays)
            paid = pays
          end
        end
      end
      local parts, newest = { format('ba1 %.0f', debt) }, 0
      for lot = 1, count do
        if units[lot] > 0 then
          parts[#parts + 1] = format(' %.0f:%.0f', units[lot], ends[lot])
          newest = ends[lot]
        end
      end
      unused_after = math.max((debt > 0 and MAX_INSTANT or newest) - now, 0)
      after = after .. table.concat(parts) .. ';'

--+ end
    else
      return redis.error_reply('ERR unknown kind of quota: ' .. kind)
    end

    if keeps then
--+ balance
      -- Without a balance, nothing denies a key that has no state.
      if not stored and not (violated and violated[i]) then
        after = string.sub(after, 1, length) .. kind .. unused[kind]
      end
--+ end
      if stored and not (moved or returns or violated and violated[i]) then
        after = string.sub(after, 1, length) .. string.sub(stored, from, place - 1)
      end
      moved = moved or was_moved
    end
    if unused_after > 0 then
      used_at_all = true
      if kept then
        kept[row] = true
--+ balance
        lives[row] = math.max(lives[row] or ttl_min, unused_after)
--+ end
      end
      if unused_after > life then
        life = unused_after
      end
    end
  end

  if stored and place <= #stored then
    return match(stored, '^ln1 ', place) and '' or redis.error_reply('CORRUPT more than the policy has')
  end

  fits = fits and not denied
--+ balance
  if pass == 2 or refund or overdraw or peek or span or mode == 'g' or fits then
--|   if pass == 2 or refund or overdraw or peek or span or fits then
--+ end
    admitted = pass == 1 and fits
    break
  end
  -- A denial charges nothing, unless the policy says so, and takes no slot. It may count as a violation. A state that was
  -- moved back is written in any case.
  if never then
    violated = nil
  end
  local charges = charge_denied and not never
  if not (charges or violated or moved) then
    break
  end
  if not charges then
    cost, keeps = 0, true
  end
  takes = false
end

local write = false
--+ balance
if span or mode == 'g' then
--| if span then
--+ end
  write = after ~= stored
elseif overdraw then
  write = true
elseif refund then
  write = stored
elseif not peek then
  write = admitted or moved or violated or charge_denied and not never
end
-- A key without a state that is still unused needs none.
if write and (stored or used_at_all) then
  local px = format(life < 2147483648 and '%d' or '%.0f', life)
  if all then
    local length = 0
    for row = 1, rows do
      local text = string.sub(after, length + 1, ended[row])
      if kept[row] and text ~= all[row] then
--+ balance
        -- Each row for its own time: a balance may last for years, and keys beside it come from anyone.
        local own = lives[row] or ttl_min
        redis.call('SET', KEYS[row], text, 'PX', format(own < 2147483648 and '%d' or '%.0f', own))
--|         redis.call('SET', KEYS[row], text, 'PX', px)
--+ end
      end
      length = ended[row] or 0
    end
  else
    redis.call('SET', KEYS[1], after, 'PX', px)
  end
end

--+ balance
if grant then
  if not peek then
    redis.call('SET', once, 'g ' .. ARGV[3], 'PX', ARGV[quotas_end + 1])
  end
  return (peek and 'r@' or 'a@') .. now_text .. ' 0 ' .. (write and after or stored or '')
end
--+ end
if settle then
  if not peek then
    redis.call('SET', once, 's' .. string.sub(first, 2), 'KEEPTTL')
  end
  return (peek and 'r@' or 'a@') .. now_text .. ' 0 ' .. (write and after or stored or '')
end

--+ balance
if told or admitted and paid > 0 then
  local head = '@' .. now_text .. ' ' .. ARGV[3]
  answer = head .. (admitted and paid > 0 and format('+%.0f ', paid) or ' ') .. answer
end
--+ end
answer = (admitted and 'a' or 'd') .. answer
-- A check that charged nothing is not stored, and is decided anew. So the limit bounds the tokens of a key.
if once and admitted and cost > 0 then
  redis.call('SET', once, answer, 'PX', ARGV[quotas_end + 1])
end
return answer
