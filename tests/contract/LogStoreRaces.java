import io.strandline.FolderLogStore;
import java.io.FileNotFoundException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;

/** Four writers create the same 200 files in a folder. Prints how many files were created more or less often than once. */
public class LogStoreRaces {
    private static final int FILES = 200;

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        int[] created = new int[FILES];
        List<Future<?>> writers = new ArrayList<>();
        var pool = Executors.newFixedThreadPool(4);
        for (int writer = 0; writer < 4; writer++) {
            String content = "writer " + writer;
            writers.add(pool.submit(() -> {
                for (int number = 0; number < FILES; number++) {
                    if (create(folder.resolve(number + " %20ü.json"), content)) {
                        synchronized (created) {
                            created[number]++;
                        }
                    }
                }
                return null;
            }));
        }
        for (Future<?> writer : writers) {
            writer.get();
        }
        pool.shutdown();
        int wrong = 0;
        for (int count : created) {
            wrong += count == 1 ? 0 : 1;
        }
        write(folder.resolve("0 %20ü.json"), "replaced", true);
        try {
            write(folder.resolve("gone").resolve("0.json"), "text", false);
        } catch (FileNotFoundException missing) {
            System.out.println(wrong + " wrong");
        }
    }

    private static boolean create(Path file, String content) throws Exception {
        try {
            write(file, content, false);
            return true;
        } catch (FileAlreadyExistsException exists) {
            return false;
        }
    }

    private static void write(Path file, String content, boolean overwrite) throws Exception {
        Configuration conf = new Configuration();
        var path = new org.apache.hadoop.fs.Path("file://" + file);
        new FolderLogStore(conf).write(path, List.of(content).iterator(), overwrite, conf);
    }
}
