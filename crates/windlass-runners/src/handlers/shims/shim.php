// PHP's side of a context: waits for orders, runs the handler's code, says how it ended.
//
// Descriptor 0 is a socket to the server; what is said on it is described in frames.rs. The shim works on copies of it, so a
// handler that reads or closes STDIN does it no harm. What is printed goes to the server with the job that printed it.
//
// The parts of a handler are run inside functions. What before and beforeEach put into variables is there for the body and for
// afterEach, as references: whoever changes it changes it for all. exit() ends the whole process, there is no way to catch it in PHP;
// the server takes the exit code for the job's status and starts another context for the rest.

namespace Windlass;

/** Everything of the shim's is in here, so that a handler does not meet it by accident. */
final class Shim
{
    private const PIECE_BYTES = 65536;
    /** Jobs that were sent together are begun for this long; the rest go back to the server, which may have others to run. */
    private const PART_NANOSECONDS = 20_000_000;

    /** @var resource */
    private $orders;
    /** @var resource */
    private $line;
    /** The parts of each handler by its number. */
    private array $handlers = [];
    /** What the parts share: names and references. */
    private array $shared = [];
    private int $resultBytesMax;

    public function __construct()
    {
        // Two copies: a stream that is read and written wants to seek between the two.
        $this->orders = fopen('php://fd/0', 'rb');
        $this->line = fopen('php://fd/0', 'wb');
        stream_set_write_buffer($this->line, 0);
        ini_set('display_errors', 'stderr');
        ini_set('html_errors', '0');
        ini_set('log_errors', '0');
        set_time_limit(0);
        $this->resultBytesMax = (int) getenv('WINDLASS_RESULT_MAX');
    }

    public function main(): void
    {
        $this->capture();
        $this->say('# ready');
        $current = null;
        while (($words = $this->words()) !== null) {
            if ($words[0] === 'H') {
                $this->define($words[1], json_decode($this->bytes((int) $words[2]), true));
            } elseif ($words[0] === 'B') {
                $current = $this->handlers[$words[1]];
                $this->batch($current, (int) $words[2], $words[3]);
            } elseif ($words[0] === 'M') {
                $this->part($current, (int) $words[1]);
            } elseif ($words[0] === 'E') {
                $this->attempt('a', $current['afterEach']);
            }
        }
    }

    private function say(string $header, string $body = ''): void
    {
        $frame = $header . ' ' . strlen($body) . "\n" . $body;
        while ($frame !== '') {
            $written = fwrite($this->line, $frame);
            if ($written === false || $written === 0) {
                exit(1); // The server is gone.
            }
            $frame = (string) substr($frame, $written);
        }
    }

    private function words(): ?array
    {
        $header = fgets($this->orders);
        return $header === false ? null : explode(' ', rtrim($header, "\n"));
    }

    private function bytes(int $length): string
    {
        $bytes = '';
        while (strlen($bytes) < $length) {
            $piece = fread($this->orders, min($length - strlen($bytes), self::PIECE_BYTES));
            if ($piece === false || $piece === '') {
                exit(1);
            }
            $bytes .= $piece;
        }
        return $bytes;
    }

    /** echo and print lead here: in pieces, and the rest when a part ends. */
    private function capture(): void
    {
        ob_start(function (string $printed): string {
            for ($at = 0; $at < strlen($printed); $at += self::PIECE_BYTES) {
                $this->say('+ 1', substr($printed, $at, self::PIECE_BYTES));
            }
            return '';
        }, self::PIECE_BYTES);
    }

    private function flush(): void
    {
        // Buffers the handler has opened and not closed.
        while (ob_get_level() > 1) {
            ob_end_flush();
        }
        if (ob_get_level() < 1) {
            $this->capture(); // It has closed ours.
        } elseif (ob_get_length() > 0) {
            ob_flush();
        }
    }

    /** What a part gave back: nothing, a status, a result, or [status, result]. */
    private static function statusOf(mixed $value): array
    {
        if ($value === null) {
            return ['200', ''];
        }
        $data = '';
        if (is_array($value) && array_is_list($value) && count($value) === 2 && is_int($value[0])) {
            [$value, $data] = $value;
        } elseif (!is_int($value)) {
            return ['200', self::asBytes($value)];
        }
        if ($value < 100 || $value > 599) {
            return ['?', "$value is no status from 100 to 599"];
        }
        return [(string) $value, self::asBytes($data)];
    }

    private static function asBytes(mixed $data): string
    {
        if ($data === null || is_string($data)) {
            return (string) $data;
        }
        return json_encode($data, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE);
    }

    /** Runs one part and tells how it ended; whether it went well. */
    private function attempt(string $what, callable $work): bool
    {
        try {
            [$status, $data] = self::statusOf($work());
        } catch (\Throwable $error) {
            $this->flush();
            $this->say('+ 2', $error . "\n");
            [$status, $data] = ['!', substr(get_class($error) . ': ' . $error->getMessage(), 0, 4096)];
        }
        $this->flush();
        if (strlen($data) > $this->resultBytesMax) {
            [$status, $data] = ['>', ''];
        }
        $this->say("= $what $status", $data);
        return $status[0] === '2';
    }

    /** A part whose variables are there for all that come later. */
    private function sharing(?string $source): ?\Closure
    {
        if ($source === null) {
            return null;
        }
        $code = 'return static function (array &$windlass_shared) {
            extract($windlass_shared, EXTR_REFS);
            try {
' . self::bare($source) . '
            } finally {
                foreach (array_keys(get_defined_vars()) as $windlass_name) {
                    if ($windlass_name !== "windlass_shared" && $windlass_name !== "windlass_name") {
                        $windlass_shared[$windlass_name] = &$$windlass_name;
                    }
                }
            }
        };';
        $function = self::compile($code);
        return fn() => $function($this->shared);
    }

    private static function body(string $source, string $parameters): \Closure
    {
        return self::compile('return static function (array &$windlass_shared, ' . $parameters . ') {
            extract($windlass_shared, EXTR_REFS | EXTR_SKIP);
' . self::bare($source) . '
        };');
    }

    /** Authors may write the mark that opens a file of PHP; here it would open nothing. */
    private static function bare(string $source): string
    {
        return preg_replace('/^\s*<\?php\b/', '', $source, 1);
    }

    private static function compile(string $code): \Closure
    {
        return eval($code);
    }

    private function define(string $number, array $parts): void
    {
        $this->attempt('b', function () use ($number, $parts) {
            $before = $this->sharing($parts['before']);
            if ($before !== null) {
                $before();
            }
            $this->handlers[$number] = [
                'jobtype' => $parts['jobtype'],
                'beforeEach' => $this->sharing($parts['beforeEach']),
                'afterEach' => $this->sharing($parts['afterEach']),
                'body' => self::body($parts['body'], '$payload, $job'),
                'whole' => self::body($parts['body'], '$payloads, $jobs'),
            ];
        });
    }

    private function readJob(string $jobtype): array
    {
        [, $id, $attempt, $length] = $this->words();
        $job = ['id' => $id, 'attempt' => (int) $attempt, 'jobtype' => $jobtype];
        return [$this->bytes((int) $length), $job];
    }

    /** At least one job is run; what is not begun in time is thrown away here and sent again by the server. */
    private function part(array $handler, int $count): void
    {
        $body = $handler['body'];
        $began = hrtime(true);
        for ($number = 0; $number < $count; $number++) {
            [$payload, $job] = $this->readJob($handler['jobtype']);
            if ($number > 0 && hrtime(true) - $began > self::PART_NANOSECONDS) {
                while (++$number < $count) {
                    $this->readJob('');
                }
                $this->say('= c 200');
                return;
            }
            $this->attempt((string) $number, fn() => $body($this->shared, $payload, $job));
        }
    }

    private function batch(array $handler, int $count, string $mode): void
    {
        if ($handler['beforeEach'] !== null && !$this->attempt('e', $handler['beforeEach'])) {
            // The server ends this context; nothing may be run in it.
            stream_get_contents($this->orders);
            return;
        }
        if ($mode === 'all') {
            $payloads = $jobs = [];
            for ($number = 0; $number < $count; $number++) {
                [$payloads[], $jobs[]] = $this->readJob($handler['jobtype']);
            }
            $this->attempt('B', fn() => $handler['whole']($this->shared, $payloads, $jobs));
        } else {
            $this->part($handler, $count);
        }
    }
}

(new Shim())->main();
