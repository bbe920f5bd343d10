package io.strandline;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Log store of Delta for S3, for any number of drivers. A commit is one conditional PUT, which S3 refuses if the object
 * exists. A reader sees a whole object or none.
 *
 * <p>Every object carries the id of the write that made it. If an answer is lost, the writer reads this id, and so
 * tells its own commit from that of a rival.
 */
public final class S3ConditionalLogStore extends HadoopFileSystemLogStore {
    private static final String OWNER = "strandline-owner";
    private static final int ATTEMPTS = 5;
    private static final int CONFLICT = 409;

    public S3ConditionalLogStore(Configuration hadoopConf) {
        super(hadoopConf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
            throws IOException {
        FileSystem fs = path.getFileSystem(hadoopConf);
        StringBuilder lines = new StringBuilder();
        while (actions.hasNext()) {
            lines.append(actions.next()).append('\n');
        }
        byte[] content = lines.toString().getBytes(StandardCharsets.UTF_8);
        if (overwrite) {
            try (FSDataOutputStream stream = fs.create(path, true)) {
                stream.write(content);
            }
        } else {
            writeOnce(fs, path, content);
        }
    }

    /** Writes the object if there is none. Every attempt has the same id, so an attempt that arrives late is harmless. */
    private static void writeOnce(FileSystem fs, Path path, byte[] content) throws IOException {
        String owner = UUID.randomUUID().toString();
        for (int attempt = 1; ; attempt++) {
            try {
                create(fs, path, content, owner);
                return;
            } catch (IOException error) {
                String found = owner(fs, path, error);
                if (owner.equals(found)) {
                    return; // the answer was lost
                }
                if (found != null) {
                    throw alreadyExists(path, error);
                }
                if (attempt == ATTEMPTS || status(error) != CONFLICT) {
                    throw error;
                }
            }
        }
    }

    private static void create(FileSystem fs, Path path, byte[] content, String owner) throws IOException {
        FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(path);
        builder.must("fs.option.create.conditional.overwrite", "true");
        builder.must("fs.s3a.create.performance", "true"); // no HEAD and no LIST before the PUT
        builder.must("fs.s3a.create.header." + OWNER, owner);
        FSDataOutputStream stream = builder.build();
        try {
            stream.write(content);
        } catch (IOException | RuntimeException error) {
            stream.abort(); // close() would store a part of the content
            throw error;
        }
        stream.close();
    }

    /** Returns the id of the write that made the object: empty if the object has none, null if there is no object. */
    private static String owner(FileSystem fs, Path path, IOException failure) throws IOException {
        try {
            byte[] id = fs.getXAttr(path, "header." + OWNER);
            return id == null ? "" : new String(id, StandardCharsets.UTF_8);
        } catch (java.io.FileNotFoundException missing) {
            return null;
        } catch (IOException error) {
            failure.addSuppressed(error);
            throw failure; // nothing is known about the object
        }
    }

    private static IOException alreadyExists(Path path, IOException cause) {
        IOException refused = new FileAlreadyExistsException(path.toString());
        refused.initCause(cause);
        return refused;
    }

    /** Returns the HTTP status of a failure of S3A, or 0. S3 answers 409 if another PUT of the object is running. */
    private static int status(IOException error) {
        try {
            return (Integer) error.getClass().getMethod("statusCode").invoke(error);
        } catch (ReflectiveOperationException none) {
            return 0;
        }
    }

    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration hadoopConf) {
        return false;
    }
}
