-- What wrk sends. Arguments: METHOD PATH BODY-FILE CONTENT-TYPE FIRST CYCLE LIMIT
-- A %d in the path or the body becomes a number that counts up from FIRST; in the path it starts again after CYCLE
-- requests (0: never). After LIMIT answers (0: none) the run ends early. The token comes by the environment.

local method, path, body, first, cycle, limit
local count, answered = -1, 0 -- wrk asks for one request that it does not send, to see whether it is well-formed

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
         if answered >= limit then wrk.thread:stop() end
      end
   end
end

function request()
   local place = cycle > 0 and count % cycle or count
   local at = path:gsub("%%d", first + place)
   local sent = body and body:gsub("%%d", first + count)
   count = count + 1
   return wrk.format(method, at, nil, sent)
end

function done(summary, latency)
   local errors = summary.errors
   io.write(string.format(
      '{"requests": %d, "microseconds": %d, "refused": %d, "broken": %d, "p50": %g, "p99": %g, "max": %g}\n',
      summary.requests, summary.duration, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
      latency:percentile(50), latency:percentile(99), latency.max))
end
