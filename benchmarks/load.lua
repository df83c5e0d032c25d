-- What wrk sends. Arguments: METHOD PATH BODY-FILE CONTENT-TYPE FIRST CYCLE LIMIT
-- A %d in the path or the body becomes a number that counts up from FIRST; in the path it starts again after CYCLE
-- requests (0: never). After LIMIT answers (0: none) the run ends early. The token comes by the environment.

local ffi = require("ffi")
ffi.cdef [[
   typedef struct { long seconds; long nanoseconds; } moment;
   int clock_gettime(int clock, moment *now);
]]

local function now() -- microseconds
   local moment = ffi.new("moment")
   ffi.C.clock_gettime(1, moment)
   return tonumber(moment.seconds) * 1e6 + tonumber(moment.nanoseconds) / 1e3
end

local threads = {}
local method, path, body, first, cycle, limit, began
local count, answered = -1, 0 -- wrk asks for one request that it does not send, to see whether it is well-formed

ended_after = 0 -- microseconds; global, so that done() can ask the thread for it

function setup(thread)
   table.insert(threads, thread)
end

function init(args)
   method, path = args[1], args[2]
   if args[3] ~= "-" then
      local file = assert(io.open(args[3], "rb"))
      body = file:read("*a")
      file:close()
   end
   wrk.headers["Authorization"] = "Bearer " .. os.getenv("BENCH_TOKEN")
   wrk.headers["Content-Type"] = args[4]
   first, cycle, limit = tonumber(args[5]), tonumber(args[6]), tonumber(args[7])
   if limit > 0 then
      response = function()
         answered = answered + 1
         if answered == limit then
            ended_after = now() - began
            wrk.thread:stop()
         end
      end
   end
end

function request()
   if count == 0 then began = now() end
   local place = cycle > 0 and count % cycle or count
   local at = path:gsub("%%d", first + place)
   local sent = body and body:gsub("%%d", first + count)
   count = count + 1
   return wrk.format(method, at, nil, sent)
end

function done(summary, latency)
   local errors = summary.errors
   local early = threads[1]:get("ended_after") -- wrk itself tells how long it meant to run
   local duration = early > 0 and early or summary.duration
   io.write(string.format(
      '{"requests": %d, "microseconds": %d, "refused": %d, "broken": %d, "p50": %g, "p99": %g, "max": %g}\n',
      summary.requests, duration, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
      latency:percentile(50), latency:percentile(99), latency.max))
end
