-- What all scripts share: the windows of core/limit/window.go, bucket.go and gauge.go, kept in a hash. Times are
-- microseconds, and all numbers whole ones below 2^53, where a double is exact.
--
-- A window is one field of the hash, its state, beside a field for each slot but the newest, which is in the state. Ids of
-- slots start at the time in ms of the window's beginning: so they are never used twice, even after the hash has expired
-- and a hold that knows an older slot has not.
--
-- Nothing is written before save: a refused order leaves only what time alone would have left.

local SLIDING, FIXED, BUCKET = 0, 1, 2
local QPS, TPM = 1000000, 60000000
local HOLDLIFE, HOLDTTL = 15000000, 75000 -- us, ms
local BUCKETSLOTS = 1024
local LOST = 1125899906842624 -- tokens of a hold whose beginning is not known
local STATE, SLOT = '<dddddddddd', '<ddd'
local floor, max, min, huge = math.floor, math.max, math.min, math.huge

local function clock(now)
  if now > 0 then return now end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- The fields are all there from the beginning: a table that grows costs more than what it is for.
local function window(key, name, rule, span, width, state, now)
  local head, n, used, till, frees, last, newest, link, since, part = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
  if state then
    head, n, used, till, frees, last, newest, link, since, part = struct.unpack(STATE, state)
  else
    head = floor(now / 1000)
  end
  return {key = key, name = name, rule = rule, span = span, width = width, head = head, n = n, used = used, till = till, frees = frees,
    last = last, newest = newest, link = link, since = since, part = part, slots = false, gone = false, dirty = false}
end

local function slots(w)
  if not w.slots then w.slots = {} end
  return w.slots
end

-- slot is the last charge, what is used and, of loans, the slot of the ten windows beside it.
local function slot(w, id)
  if id == w.head + w.n - 1 then return w.last, w.newest, w.link end
  local all = slots(w)
  local s = all[id]
  if not s then
    local v = redis.call('HGET', w.key, w.name .. ':' .. id)
    s = v and {struct.unpack(SLOT, v)} or {0, 0, 0}
    all[id] = s
  end
  return s[1], s[2], s[3]
end

local function setused(w, id, used)
  w.dirty = true
  if id == w.head + w.n - 1 then
    w.newest = used
    return
  end
  slot(w, id)
  local s = w.slots[id]
  s[2], s.dirty = used, true
end

local function lives(w, id) return id >= w.head and id < w.head + w.n end

local function pop(w, used)
  if w.n > 1 then
    if not w.gone then w.gone = {} end
    w.gone[#w.gone + 1] = w.name .. ':' .. w.head
    slots(w)[w.head] = nil
  end
  w.head, w.n, w.used, w.dirty = w.head + 1, w.n - 1, w.used - used, true
  if w.n == 0 then w.used = 0 end
end

-- flow is what has drained since w.since: whole units, and the rest in 1/span of a unit. Exact up to 10^11 per span.
local function flow(w, now, rate)
  local dt = now - w.since
  if dt <= 0 then return 0, w.part end
  if rate <= 0 then return huge, 0 end
  local spans = floor(dt / w.span)
  local rest = dt - spans * w.span
  local hi = floor(rest / 1000)
  local lo = rest - hi * 1000
  local a, s = rate * hi, w.span / 1000
  local q = floor(a / s)
  rest = (a - q * s) * 1000 + rate * lo + w.part
  local more = floor(rest / w.span)
  return rate * spans + q + more, rest - more * w.span
end

-- draintime is how long n units take from w.since on.
local function draintime(w, rate, n)
  if rate <= 0 then return 0 end
  local spans = floor(n / rate)
  return max(spans * w.span - floor((w.part - (n - spans * rate) * w.span) / rate), 0)
end

local function drain(w, now, rate)
  local q, part = flow(w, now, rate)
  while w.n > 0 do
    local _, used = slot(w, w.head)
    if used > q then
      if q > 0 then
        setused(w, w.head, used - q)
        w.used = w.used - q
      end
      break
    end
    q = q - used
    pop(w, used)
  end
  if w.n == 0 then part = 0 end
  w.since, w.part, w.dirty = max(w.since, now), part, true
end

local function shed(w, now, rate)
  if w.rule == SLIDING then
    if now < w.frees then return end
    while w.n > 0 do
      local last, used = slot(w, w.head)
      if last + w.span > now then
        w.frees, w.dirty = last + w.span, true
        return
      end
      pop(w, used)
    end
  elseif w.rule == FIXED then
    if w.n > 0 and w.since + w.span <= now then pop(w, w.newest) end
  else
    drain(w, now, rate)
  end
end

local function level(w, now, rate)
  if w.rule == BUCKET then
    local q = flow(w, now, rate)
    return max(w.used - q, 0)
  end
  shed(w, now, rate)
  return w.used
end

local function push(w, now, last)
  if w.n > 0 then
    slots(w)[w.head + w.n - 1] = {w.last, w.newest, w.link, dirty = true}
    last = max(last, w.last)
  else
    w.frees = last + w.span
  end
  if w.rule == FIXED then
    w.since, w.till = now, now + w.span
  else
    w.till = now + w.width
  end
  w.n, w.last, w.newest, w.link = w.n + 1, last, 0, 0
end

-- add charges n at now, to leave a span after last; it returns the slot.
local function add(w, now, rate, n, last)
  shed(w, now, rate)
  if w.n == 0 or (now >= w.till and not (w.rule == BUCKET and w.n >= BUCKETSLOTS)) then push(w, now, last) end
  w.last = max(w.last, last)
  w.newest, w.used, w.dirty = w.newest + n, w.used + n, true
  return w.head + w.n - 1
end

-- takeback takes n out of a slot again, if it lives and as far as it is still there.
local function takeback(w, id, n)
  if n <= 0 or not lives(w, id) then return end
  local _, used = slot(w, id)
  n = min(n, used)
  setused(w, id, used - n)
  w.used = w.used - n
end

local function wait(w, now, rate, target)
  local over = level(w, now, rate) - target
  if over <= 0 then return 0 end
  if w.rule == FIXED then return w.since + w.span - now end
  if w.rule == BUCKET then return draintime(w, rate, w.used - target) - (now - w.since) end
  for id = w.head, w.head + w.n - 1 do
    local last, used = slot(w, id)
    over = over - used
    if over <= 0 then return last + w.span - now end
  end
  return w.span
end

-- empty is how long until nothing is in use.
local function empty(w, now, rate)
  if w.rule == SLIDING and w.n > 0 then return w.last + w.span - now end
  return wait(w, now, rate, 0)
end

local function save(w)
  if not w or not w.dirty then return end
  local state = struct.pack(STATE, w.head, w.n, w.used, w.till, w.frees, w.last, w.newest, w.link, w.since, w.part)
  if w.slots then
    local set = {w.name, state}
    for id, s in pairs(w.slots) do
      if s.dirty and id < w.head + w.n - 1 then
        set[#set + 1] = w.name .. ':' .. id
        set[#set + 1] = struct.pack(SLOT, s[1], s[2], s[3])
      end
    end
    redis.call('HSET', w.key, unpack(set))
  else
    redis.call('HSET', w.key, w.name, state)
  end
  if w.gone then
    for i = 1, #w.gone, 500 do redis.call('HDEL', w.key, unpack(w.gone, i, min(i + 499, #w.gone))) end
  end
end

-- An exact log of requests is a sorted set, by time; it stands in the place of a window.
local function logged(key) return {log = key, span = QPS, level = false, fresh = false} end

local function loglevel(q, now)
  if not q.level then q.level = redis.call('ZCOUNT', q.log, now - q.span + 1, '+inf') end
  return q.level
end

-- trim forgets what is over, one time in sixteen, which is cheaper than each time and keeps the set nearly as short.
local function trim(key, now, before)
  if now % 16 == 0 then redis.call('ZREMRANGEBYSCORE', key, '-inf', before) end
end

local function logscore(q, rank)
  local e = redis.call('ZRANGE', q.log, rank, rank, 'WITHSCORES')
  return tonumber(e[2] or 0)
end

local function logwait(q, now, target)
  local over = loglevel(q, now) - target
  if over <= 0 then return 0 end
  redis.call('ZREMRANGEBYSCORE', q.log, '-inf', now - q.span)
  return logscore(q, over - 1) + q.span - now
end

-- A gauge is one window, and a long one over ten where a bound of ten was seen.
local function gauge(key, name, short, long, now)
  local span = short.span
  return {key = key, name = name, short = short, long = long and window(key, name, SLIDING, 10 * span, span / 10, long, now)}
end

local function glevel(g, now, rate)
  if g.short.log then return loglevel(g.short, now) end
  return level(g.short, now, rate)
end

local function gwait(g, now, rate, target)
  if g.short.log then return logwait(g.short, now, target) end
  return wait(g.short, now, rate, target)
end

local function gleft(g, now, b)
  if b.most == 0 then return huge end
  local n = b.most - glevel(g, now, b.rate)
  if b.ten > 0 and g.long then n = min(n, b.ten - level(g.long, now, 0)) end
  return n
end

local function goverrun(g, now, b, n)
  if n > b.most then return g.short.span end
  local t = gwait(g, now, b.rate, b.most - n)
  if b.ten > 0 and g.long then t = max(t, wait(g.long, now, 0, b.ten - n)) end
  return t
end

local function gempty(g, now, rate)
  if not g.short.log then return empty(g.short, now, rate) end
  if loglevel(g.short, now) == 0 then return 0 end
  return logscore(g.short, -1) + g.short.span - now
end

-- remember starts the history of ten windows with what the present one still knows.
local function remember(g, now)
  local w = g.short
  local l = window(g.key, g.name, SLIDING, 10 * w.span, w.span / 10, false, now)
  g.long = l
  if w.log then
    local e = redis.call('ZRANGEBYSCORE', w.log, '(' .. string.format('%.0f', now - w.span), '+inf', 'WITHSCORES')
    for i = 2, #e, 2 do
      local at = tonumber(e[i])
      add(l, at, 0, 1, at)
    end
    return
  end
  shed(w, now, 0)
  for id = w.head, w.head + w.n - 1 do
    local last, used = slot(w, id)
    add(l, last, 0, used, last)
  end
end

-- gcharge charges n at now and returns the slots it went to; 0 is none. Members name the n requests in a log.
local function gcharge(g, now, b, n, last, member)
  if n <= 0 then return 0, 0 end
  if b.ten > 0 and not g.long then remember(g, now) end
  local s, l, w = 0, 0, g.short
  if w.log then
    w.fresh = loglevel(w, now) == 0
    trim(w.log, now, now - w.span)
    for i = 1, n do redis.call('ZADD', w.log, now, i == 1 and member or member .. ':' .. i) end
  else
    s = add(w, now, b.rate, n, last)
  end
  if g.long then l = add(g.long, now, 0, n, last) end
  return s, l
end

local function gtakeback(g, now, rate, s, l, n)
  if not g.short.log then
    shed(g.short, now, rate)
    takeback(g.short, s, n)
  end
  if g.long and n > 0 then
    shed(g.long, now, 0)
    takeback(g.long, l, n)
  end
end

local function ggone(g, s, l)
  return not lives(g.short, s) and not (g.long and lives(g.long, l))
end

-- ttl is how long a window must be kept, in us.
local function ttl(w, now, rate)
  if not w or w.n == 0 then return 0 end
  if w.rule == BUCKET then return min(max(w.since - now, 0) + draintime(w, rate, w.used), 2592000000000) end
  return max(w.last - now, 0) + w.span
end
